"""Endpoint of a running sidecar, and the options of the commands that query it."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from yarl import URL

from lookup_core.bearer_token import FORM, parse_token
from lookup_core.protocol.endpoint import EndpointUrl
from lookup_core.protocol.tls_hints import TlsHint, words


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

    def hint(self, host: str) -> TlsHint:
        """Return the explanations of failed TLS handshakes with a host."""
        return TlsHint(
            host,
            self.ca_file,
            self.cert_file,
            ca_option="--ca-file",
            cert_options="--cert-file and --key-file",
        )


def _unusable(options: str, files: str | None, error: OSError) -> typer.BadParameter:
    is_content_wrong = isinstance(error, ssl.SSLError)
    reason = (getattr(error, "reason", None) or "not PEM") if is_content_wrong else error.strerror
    return typer.BadParameter(f"{options} {files} cannot be used: {words(str(reason))}")


def read_token(text: str) -> str:
    """Read the token of a file; raises typer.BadParameter if there is none."""
    try:
        return parse_token(Path(text).read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"cannot read {text}: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"{text} {error}; {FORM}") from error


UNIX = "unix://"
NO_FILES = ClientFiles()
DEFAULT = f"{UNIX}/run/sidelook/sidelook.sock"

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
class Endpoint:
    """Base URL of a sidecar, and its socket if it is not reached by TCP."""

    text: str
    base_url: URL
    socket: Path | None = None
    files: ClientFiles = NO_FILES

    @property
    def host(self) -> str:
        """Host that a certificate must be valid for."""
        return self.base_url.host or ""

    @property
    def is_secure(self) -> bool:
        """Whether requests use TLS."""
        return self.base_url.scheme == "https"

    def url(self, path: str) -> URL:
        """Return the URL of a path, which is escaped."""
        return URL(f"{self.base_url.origin()}{path}", encoded=True)

    def tls(self) -> ssl.SSLContext | bool:
        """Return aiohttp's `ssl` argument; raises typer.BadParameter for unusable files."""
        return self.files.context() if self.is_secure else True


def parse_endpoint(text: str, files: ClientFiles = NO_FILES) -> Endpoint:
    """Parse an endpoint.

    Raises typer.BadParameter for another form, and for TLS files without `https://`.
    """
    try:
        parsed = EndpointUrl.parse(text)
        if parsed.path is not None:
            endpoint = Endpoint(text, URL("http://localhost"), Path(parsed.path))
        else:
            endpoint = Endpoint(text, URL(text), files=files)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if files != NO_FILES and not endpoint.is_secure:
        raise typer.BadParameter(
            f"--ca-file, --cert-file and --key-file are for https://, not for {text}"
        )
    return endpoint
