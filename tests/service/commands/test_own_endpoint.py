"""Where the sidecar of a configuration is asked."""

from pathlib import Path

import pytest
import trustme

from service.commands.endpoint import OwnEndpoint, own_endpoint
from service.config.settings import Settings


def settings(**listen: object) -> Settings:
    """One dimension, and these listeners."""
    source = {"kind": "parquet", "path": "/x"}
    return Settings({"listen": listen, "dimensions": {"a": {"source": source, "key": ["k"]}}})


def test_socket_comes_first() -> None:
    """Without a configuration it is the usual one."""
    assert own_endpoint(None) == OwnEndpoint("unix:///run/sidelook/sidelook.sock")
    assert own_endpoint(settings(unix="/s", http="127.0.0.1:1")) == OwnEndpoint("unix:///s")


def test_address_is_asked_as_it_is() -> None:
    """Where it has no TLS, no name matters."""
    assert own_endpoint(settings(unix=None, http="127.0.0.1:1")) == OwnEndpoint(
        "http://127.0.0.1:1"
    )


@pytest.mark.parametrize(
    ("http", "names", "expected"),
    [
        ("0.0.0.0:1", ["b.test", "a.test"], OwnEndpoint("https://127.0.0.1:1", "a.test")),
        ("[::]:1", ["*.test", "b.test"], OwnEndpoint("https://[::1]:1", "b.test")),
        ("[0::0]:1", ["*.test"], OwnEndpoint("https://[::1]:1", "sidelook.test")),
        ("0.0.0.0:1", ["a.test", "127.0.0.1"], OwnEndpoint("https://127.0.0.1:1")),
        ("10.0.0.1:1", ["a.test"], OwnEndpoint("https://10.0.0.1:1", "a.test")),
    ],
)
def test_certificate_is_asked_for_a_name_that_it_has(
    tmp_path: Path, http: str, names: list[str], expected: OwnEndpoint
) -> None:
    """Every address is asked on loopback, which few certificates are for."""
    certificate = trustme.CA().issue_cert(*names)
    (tmp_path / "c").write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(tmp_path / "k"))
    (tmp_path / "k").chmod(0o600)
    tls = {"cert_file": str(tmp_path / "c"), "key_file": str(tmp_path / "k")}
    client_ca = {"client_ca_file": str(tmp_path / "ca")}
    trustme.CA().cert_pem.write_to_path(client_ca["client_ca_file"])

    assert own_endpoint(settings(unix=None, http=http, tls=tls | client_ca)) == expected
