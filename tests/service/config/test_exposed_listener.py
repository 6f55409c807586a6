"""Nobody listens beyond loopback without knowing who asks, and without TLS."""

from pathlib import Path

import pytest

from service.config.settings import Settings
from tests.service.config.configuration import MINIMAL, faults
from tests.service.tls.certificates import authority

EXPOSED = ["0.0.0.0:8815", "[::]:8815", "10.1.2.3:8815", "localhost.example:8815"]


def protections(folder: Path) -> dict[str, dict[str, str]]:
    """Sections by name: a token, TLS, and TLS that asks for certificates."""
    signer = authority(folder)
    files = signer.issue("localhost.example", "10.1.2.3")
    token = folder / "token"
    token.touch(0o600)
    token.write_text("s3cret")
    tls = {"cert_file": str(files.cert_file), "key_file": str(files.key_file)}
    return {
        "auth": {"token_file": str(token)},
        "tls": tls,
        "mutual": {**tls, "client_ca_file": str(signer.file)},
    }


@pytest.mark.parametrize("http", EXPOSED)
def test_open_listener_stays_on_loopback(http: str) -> None:
    """What is missing is named, and what can be done instead."""
    assert faults({"listen": {"http": http}}) == [
        (
            f"listen.http: {http} can be reached from other machines, which needs listen.tls and "
            "auth.token_file, or listen.tls with its client_ca_file; or listen on 127.0.0.1"
        )
    ]


@pytest.mark.parametrize("http", EXPOSED)
def test_token_needs_tls(tmp_path: Path, http: str) -> None:
    """Otherwise everybody on the way could read it."""
    auth = protections(tmp_path)["auth"]

    assert faults({"listen": {"http": http}, "auth": auth}) == [
        (
            f"listen.http: {http} can be reached from other machines, which needs listen.tls; "
            "or listen on 127.0.0.1"
        )
    ]


@pytest.mark.parametrize("http", EXPOSED)
def test_tls_needs_to_know_who_asks(tmp_path: Path, http: str) -> None:
    """TLS of the server alone lets everybody in; the admin's token is not that of readers."""
    given = protections(tmp_path)
    auth = {"admin_token_file": given["auth"]["token_file"]}

    assert faults({"listen": {"http": http, "tls": given["tls"]}, "auth": auth}) == [
        (
            f"listen.http: {http} can be reached from other machines, which needs auth.token_file, "
            "or listen.tls.client_ca_file; or listen on 127.0.0.1"
        )
    ]


@pytest.mark.parametrize("http", EXPOSED)
@pytest.mark.parametrize(("tls", "has_token"), [("tls", True), ("mutual", False), ("mutual", True)])
def test_protected_listener_may_leave_loopback(
    tmp_path: Path, http: str, tls: str, *, has_token: bool
) -> None:
    """A token and TLS, or certificates of the callers, suffice."""
    given = protections(tmp_path)
    auth = given["auth"] if has_token else {}

    settings = Settings({"listen": {"http": http, "tls": given[tls]}, "auth": auth}, MINIMAL)

    assert str(settings.listen.http) == http


def test_loopback_needs_nothing() -> None:
    """The pod is the border."""
    assert Settings({"listen": {"http": "127.0.0.1:1"}}, MINIMAL).listen.tls is None


def test_faulty_token_is_told_alone() -> None:
    """What is wrong with the token's file is not told as if there were none."""
    (fault,) = faults({"listen": {"http": "0.0.0.0:1"}, "auth": {"token_file": "/none"}})

    assert fault.startswith("auth.token_file: cannot read /none: No such file or directory; ")
