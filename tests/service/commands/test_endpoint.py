"""Endpoints as they are typed."""

from pathlib import Path

import pytest
import typer
from yarl import URL

from service.commands.endpoint import DEFAULT, ClientFiles, Endpoint, parse_endpoint
from service.config.listen import Listen


@pytest.mark.parametrize("path", ["/run/sidelook/sidelook.sock", "examples/sidelook.sock"])
def test_sockets_are_named_by_path(path: str) -> None:
    """A path may be absolute, or start at the working folder."""
    text = f"unix://{path}"

    assert parse_endpoint(text) == Endpoint(text, URL("http://localhost"), Path(path))


@pytest.mark.parametrize("text", ["http://127.0.0.1:8815", "https://[::1]:8815", "http://h:1/"])
def test_addresses_are_http(text: str) -> None:
    """A host and a port are all that an address has."""
    assert parse_endpoint(text) == Endpoint(text, URL(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", "unix://", "/run/s.sock", "localhost:8815", "ftp://h:1", "http://", "http://h:x"),
        *("http://h/path", "http://u:p@h", "http://h?x=1"),
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    """What is neither is refused with both forms."""
    with pytest.raises(typer.BadParameter, match="neither unix:///path nor http://host:port"):
        parse_endpoint(text)


@pytest.mark.parametrize("text", [DEFAULT, "http://127.0.0.1:8815"])
def test_files_are_for_https(text: str) -> None:
    """Where there is no TLS its files would have no effect."""
    with pytest.raises(typer.BadParameter, match=f"are for https://, not for {text}"):
        parse_endpoint(text, ClientFiles(ca_file="ca.crt"))


def test_files_go_with_the_address() -> None:
    """The host is the one that the certificate has to name."""
    files = ClientFiles("ca.crt", "tls.crt", "tls.key")

    endpoint = parse_endpoint("https://sidecar.example:8815", files)

    assert (endpoint.files, endpoint.host, endpoint.is_secure) == (files, "sidecar.example", True)


def test_default_is_the_services_default() -> None:
    """Without options commands ask where a sidecar listens without options."""
    assert f"unix://{Listen().unix}" == DEFAULT
