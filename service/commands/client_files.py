"""The files of TLS that a command is given: whom to trust, and what to show.

Shakes no hands; see `sidecar_client`.
"""

import ssl
from dataclasses import dataclass
from typing import Annotated

import typer

from lookup_core.tls_refusal import TlsRefusal, words


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """By name; without any, the system's authorities are trusted, and nothing is shown."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """For one command; raises typer.BadParameter naming the file that cannot be used."""
        if (self.cert_file is None) != (self.key_file is None):
            raise typer.BadParameter("give both or none of --cert-file and --key-file")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise _unusable("--ca-file", self.ca_file, error) from error
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except OSError as error:
                files = f"{self.cert_file}, {self.key_file}"
                raise _unusable("--cert-file, --key-file", files, error) from error
        return context

    def refusal(self, host: str) -> TlsRefusal:
        """What is said if both ends do not agree."""
        return TlsRefusal(
            host,
            self.ca_file,
            self.cert_file,
            ca_option="--ca-file",
            cert_options="--cert-file and --key-file",
        )


def _unusable(options: str, files: str | None, error: OSError) -> typer.BadParameter:
    is_of_content = isinstance(error, ssl.SSLError)
    reason = (getattr(error, "reason", None) or "not PEM") if is_of_content else error.strerror
    return typer.BadParameter(f"{options} {files} cannot be used: {words(str(reason))}")


CaFileOption = Annotated[
    str | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="Authorities to trust, instead of the system's."
    ),
]
CertFileOption = Annotated[
    str | None,
    typer.Option("--cert-file", metavar="FILE", help="Certificate, where one is asked for."),
]
KeyFileOption = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="Key of the certificate.")
]
