"""Endpoint of a running sidecar: its options, its token, and the client's TLS files."""

import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from lookup_core.bearer_token import FORM, parse_token
from lookup_core.endpoint import EndpointUrl, TlsHint, unusable_files

UNIX = "unix://"
DEFAULT = f"{UNIX}/run/sidelook/sidelook.sock"


def read_token(file: str) -> str:
    """Read the token of a file; raises typer.BadParameter if there is none."""
    try:
        return parse_token(Path(file).read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"{file} {error}; {FORM}") from error


EndpointOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        show_default=False,  # it would be split at 80 columns
        help=f"unix:///path, http://host:port or https://host:port; by default {DEFAULT}.",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        parser=read_token,
        metavar="FILE",
        help="Token, if the sidecar requires one.",
    ),
]
CaFileOption = Annotated[
    str | None,
    typer.Option("--ca-file", metavar="FILE", help="CAs to trust, instead of the system's."),
]
CertFileOption = Annotated[
    str | None,
    typer.Option("--cert-file", metavar="FILE", help="Certificate, if the sidecar requires one."),
]
KeyFileOption = Annotated[
    str | None, typer.Option("--key-file", metavar="FILE", help="Key of the certificate.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@dataclass(frozen=True, slots=True)
class ClientFiles:
    """TLS files of a client; without them it trusts the system's CAs and has no certificate."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files; raises typer.BadParameter naming an unusable file."""
        if (self.cert_file is None) != (self.key_file is None):
            raise typer.BadParameter("give both or none of --cert-file and --key-file")
        options, files = "--ca-file", self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                options, files = "--cert-file, --key-file", f"{self.cert_file}, {self.key_file}"
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise typer.BadParameter(unusable_files(options, files, error)) from error
        return context

    def hint(self, host: str) -> TlsHint:
        """Return the explanations of failed TLS handshakes with a host."""
        return TlsHint(
            host,
            self.ca_file,
            self.cert_file,
            ca_option="--ca-file",
            cert_options="--cert-file and --key-file",
        )


@dataclass(frozen=True, slots=True)
class SidecarEndpoint(EndpointUrl):
    """A parsed endpoint, with the client's TLS files for https."""

    files: ClientFiles = field(default_factory=ClientFiles)

    @property
    def socket(self) -> Path | None:
        """The Unix socket; None for an address of TCP."""
        return None if self.path is None else Path(self.path)

    @property
    def tls(self) -> ssl.SSLContext | bool:
        """Aiohttp's argument `ssl`; raises typer.BadParameter for unusable files."""
        return self.files.context() if self.is_secure else True


def parse_endpoint(text: str, files: ClientFiles | None = None) -> SidecarEndpoint:
    """Parse an endpoint.

    Raises typer.BadParameter for another form, and for TLS files without `https://`.
    """
    try:
        address = SidecarEndpoint.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if files is None:
        return address
    if files != ClientFiles() and not address.is_secure:
        raise typer.BadParameter(
            f"--ca-file, --cert-file and --key-file are for https://, not for {text}"
        )
    return replace(address, files=files)
