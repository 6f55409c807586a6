"""Endpoint of a running sidecar, with the token and TLS files that a command shows."""

import ipaddress
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from yarl import URL

from lookup_core.protocol.tls_hints import TlsHint, words
from service.config.host_port import HostPort
from service.config.listen import ListenTls
from service.config.settings import Settings


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

    def refusal(self, host: str) -> TlsHint:
        """What is said if both ends do not agree."""
        return TlsHint(
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


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token, and the option or setting that named its file."""

    text: str
    origin: str


def shown_token(given: str | None, settings: Settings | None) -> ShownToken | None:
    """That of --token-file, else the configuration's own; None if it has none that is fit.

    What is wrong with the configuration's file is told by who looks at its secrets.
    """
    if given is not None:
        return ShownToken(given, "--token-file")
    file = None if settings is None else settings.auth.token_file
    if file is None:
        return None
    try:
        return ShownToken(read_token(str(file)), "auth.token_file")
    except typer.BadParameter:
        return None


def read_token(text: str) -> str:
    """The token in the file; raises typer.BadParameter if there is none."""
    try:
        token = Path(text).read_text(encoding="ascii").strip()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {text}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{text} holds more than plain text") from error
    if not token or not token.isprintable():
        raise typer.BadParameter(f"{text} does not hold a token on one line")
    return token


TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token-file", parser=read_token, metavar="FILE", help="Token, where one is asked for."
    ),
]


UNIX = "unix://"
NO_FILES = ClientFiles()
_SCHEMES = frozenset({"http", "https"})
DEFAULT = f"{UNIX}/run/sidelook/sidelook.sock"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The base of all addresses, and the socket that they are asked through, if it is one."""

    text: str
    base_url: URL
    socket: Path | None = None
    files: ClientFiles = NO_FILES

    @property
    def host(self) -> str:
        """Whose certificate is expected, if it has one."""
        return self.base_url.host or ""

    @property
    def is_secure(self) -> bool:
        """Whether it is asked with TLS."""
        return self.base_url.scheme == "https"

    def tls(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`; raises typer.BadParameter for files that cannot be used."""
        return self.files.context() if self.is_secure else True


def parse_endpoint(text: str, files: ClientFiles = NO_FILES) -> Endpoint:
    """The endpoint that a text names; raises typer.BadParameter naming the accepted forms.

    So it does for files of TLS where there is none.
    """
    endpoint = _endpoint(text, files)
    if files != NO_FILES and not endpoint.is_secure:
        raise typer.BadParameter(
            f"--ca-file, --cert-file and --key-file are for https://, not for {text}"
        )
    return endpoint


def _endpoint(text: str, files: ClientFiles) -> Endpoint:
    if text.startswith(UNIX) and len(text) > len(UNIX):
        return Endpoint(text, URL("http://localhost"), Path(text.removeprefix(UNIX)))
    try:
        url = URL(text)
        is_http = url.scheme in _SCHEMES and bool(url.host) and url == url.origin()
    except ValueError:
        is_http = False
    if not is_http:
        raise typer.BadParameter(
            f"{text!r} is neither unix:///path nor http://host:port nor https://host:port"
        )
    return Endpoint(text, url, files=files)


EndpointOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        show_default=False,  # in one piece, which a long default never is
        help=f"unix:///path, http://host:port or https://host:port; by default {DEFAULT}.",
    ),
]


@dataclass(frozen=True, slots=True)
class OwnEndpoint:
    """As --endpoint has it, and whom the certificate must be for, if not for its host."""

    text: str
    server_name: str | None = None


def own_endpoint(settings: Settings | None) -> OwnEndpoint:
    """The socket, if there is one; without a configuration the usual one."""
    if settings is None:
        return OwnEndpoint(DEFAULT)
    listen = settings.listen
    if listen.unix is not None or listen.http is None:
        return OwnEndpoint(f"{UNIX}{listen.unix}")
    http = listen.http
    if http.is_address and ipaddress.ip_address(http.host).is_unspecified:
        http = replace(http, host="::1" if ":" in http.host else "127.0.0.1")
    if listen.tls is None:
        return OwnEndpoint(f"http://{http}")
    return OwnEndpoint(f"https://{http}", _server_name(listen.tls, http))


def _server_name(tls: ListenTls, http: HostPort) -> str | None:
    """A name that callers ask for; of `*.domain` any name will do."""
    try:
        certificate = tls.certificate()
    except ValueError:  # replaced since the configuration was read
        return None
    if certificate.is_for(http.host.lower()):
        return None
    names = sorted(certificate.names, key=lambda name: (name.startswith("*."), name))
    return names[0].replace("*", "sidelook", 1)
