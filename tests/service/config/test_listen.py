"""The listeners of a configuration: addresses, TLS, and the protection of what leaves loopback."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from service.config.listen import Listen
from service.config.settings import Settings
from service.tls.server_certificate import CertificateFiles
from tests.service.config.configuration import MINIMAL, faults
from tests.service.tls.certificates import Authority, authority, section, yesterday

EXPOSED = "10.1.2.3:8815"


@dataclass(frozen=True, slots=True)
class Protections:
    """Files of a certificate and of a token, and the sections that name them."""

    signer: Authority
    files: CertificateFiles
    auth: Mapping[str, str]

    def tls(self, **others: object) -> dict[str, object]:
        """The section of the certificate."""
        return {**section(self.files), **others}


@pytest.fixture
def given(tmp_path: Path) -> Protections:
    """A certificate for some names and an address."""
    signer = authority(tmp_path)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("s3cret")
    files = signer.issue("b.example", "*.c.example", "localhost.example", "10.1.2.3")
    return Protections(signer, files, {"token_file": str(token)})


def listen(**values: object) -> Listen:
    """The section with these values."""
    return Settings({"listen": values}, MINIMAL).listen


def tls_faults(tls: object, *, http: str | None = "127.0.0.1:1") -> list[str]:
    """The faults of a TLS section."""
    return faults({"listen": {"http": http, "tls": tls}})


def test_one_listener_of_lookups_suffices(given: Protections) -> None:
    """The socket may be closed if there is a TCP listener; TLS needs a TCP listener."""
    by_tcp = listen(unix=None, http="127.0.0.1:1", health=None)
    longest = "/" + "é" * 53

    assert (by_tcp.unix, str(by_tcp.http), by_tcp.health) == (None, "127.0.0.1:1", None)
    assert str(listen(health="0.0.0.0:1").health) == "0.0.0.0:1"
    assert listen(unix=longest).unix == Path(longest)
    assert tls_faults(given.tls(), http=None) == [
        "listen.tls: has no effect without listen.http: other listeners have no TLS"
    ]


def test_certificate_is_for_the_host(given: Protections) -> None:
    """The certificate is valid for the host name of the listener; an address may have any."""
    assert tls_faults(given.tls(), http="localhost:1") == [
        (
            f"listen.tls: {given.files.cert_file} is not valid for localhost of listen.http, "
            "but for *.c.example, 10.1.2.3, b.example, localhost.example; set another certificate, "
            "or an IP address"
        )
    ]
    given.signer.issue("localhost")
    for http in ("Localhost:1", "127.0.0.1:1", "[::1]:1"):
        tls = listen(http=http, tls=given.tls()).tls
        assert tls is not None
        assert (tls.certificate().names, tls.files()) == (frozenset({"localhost"}), given.files)
    mutual = listen(http=http, tls=given.tls(client_ca_file=str(given.signer.file))).tls
    assert mutual is not None
    assert mutual.files().client_ca_file == given.signer.file


def test_unfit_files_of_tls_are_faults(given: Protections) -> None:
    """An expired certificate, a key that others may read, and wrong keys are stated."""
    given.files.key_file.chmod(0o644)
    assert tls_faults(given.tls()) == [
        (
            f"listen.tls.key_file: {given.files.key_file} is readable or writable for all users; "
            "chmod o-rw it (a Kubernetes secret: defaultMode 0440)"
        )
    ]
    assert tls_faults({"cert_fil": "a", "key_file": None}) == [
        "listen.tls.cert_file: missing, and required",
        "listen.tls.key_file: must be a path",
        "listen.tls.cert_fil: unknown key; did you mean 'cert_file'?",
    ]
    given.signer.issue(not_after=yesterday())
    (expired,) = tls_faults(given.tls())
    assert expired.startswith(f"listen.tls: {given.files.cert_file}: certificate has expired; ")


def test_exposed_listener_needs_tls_and_callers(given: Protections) -> None:
    """The fault names what is missing; the admin's token is not the token of readers."""
    admin = {"admin_token_file": given.auth["token_file"]}
    fault = f"listen.http: {EXPOSED} is reachable from other machines; set"
    rest = ", or listen on 127.0.0.1"

    def exposed(**others: Any) -> list[str]:  # noqa: ANN401
        tls = others.pop("tls", None)
        return faults({"listen": {"http": EXPOSED, "tls": tls}, **others})

    assert exposed() == [
        f"{fault} listen.tls and auth.token_file, or listen.tls with client_ca_file{rest}"
    ]
    assert exposed(auth=given.auth) == [f"{fault} listen.tls{rest}"]
    assert exposed(auth=admin, tls=given.tls()) == [
        f"{fault} auth.token_file, or listen.tls.client_ca_file{rest}"
    ]


@pytest.mark.parametrize(("is_mutual", "has_token"), [(False, True), (True, False), (True, True)])
def test_protected_listener_may_leave_loopback(
    *, given: Protections, is_mutual: bool, has_token: bool
) -> None:
    """A token with TLS, or certificates of the callers, suffice."""
    tls = given.tls(client_ca_file=str(given.signer.file) if is_mutual else None)
    auth = given.auth if has_token else {}

    settings = Settings({"listen": {"http": EXPOSED, "tls": tls}, "auth": auth}, MINIMAL)

    assert str(settings.listen.http) == EXPOSED


def test_faulty_files_are_not_shown(given: Protections) -> None:
    """A fault does not contain the wrong token or header."""
    token = Path(given.auth["token_file"])
    collector = {"endpoint": "http://c:4318", "headers_file": str(token)}
    tracing = faults({"tracing": collector})
    token.chmod(0o644)

    assert tracing == ["tracing: line 1 is not `name: value`, as in `authorization: Bearer …`"]
    (fault,) = faults({"auth": given.auth})
    assert fault.startswith(f"auth.token_file: {token} is readable or writable for all users")
