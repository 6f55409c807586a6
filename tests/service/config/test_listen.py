"""The ways in, and their contradictions."""

from pathlib import Path

import pytest

from service.config.host_port import HostPort
from service.config.listen import Listen
from tests.service.config.configuration import faults
from tests.service.tls.certificates import authority


def tls_section(folder: Path, *names: str) -> dict[str, str]:
    """The section of a certificate for these names."""
    files = authority(folder).issue(*names)
    return {"cert_file": str(files.cert_file), "key_file": str(files.key_file)}


def test_socket_and_health_are_the_default() -> None:
    """Nobody has to name the socket or the health listener; lookups by TCP must be asked for."""
    listen = Listen()

    assert listen.unix == Path("/run/sidelook/sidelook.sock")
    assert (listen.http, listen.health) == (None, HostPort("0.0.0.0", 8816))  # noqa: S104


def test_tls_without_listener_is_refused(tmp_path: Path) -> None:
    """What is written has an effect, or is refused."""
    assert faults({"listen": {"tls": tls_section(tmp_path)}}) == [
        "listen.tls: has no effect without listen.http, as the other ways in have no TLS"
    ]


def test_certificate_is_for_the_name(tmp_path: Path) -> None:
    """A certificate that is not for the host's name would be refused by every caller."""
    section = tls_section(tmp_path, "b.example", "*.c.example")

    (fault,) = faults({"listen": {"http": "localhost:1", "tls": section}})

    assert fault == (
        f"listen.tls: {section['cert_file']} is not for localhost, where listen.http is, but for "
        "*.c.example, b.example; give one that is, or listen at an address"
    )


@pytest.mark.parametrize("http", ["Localhost:1", "127.0.0.1:1", "[::1]:1"])
def test_address_may_have_any_name(tmp_path: Path, http: str) -> None:
    """Which names lead to an address is not known here; upper case means the same."""
    section = tls_section(tmp_path, "localhost")

    listen = Listen.model_validate({"http": http, "tls": section})

    assert listen.tls is not None
    assert listen.tls.certificate().names == {"localhost"}


def test_health_may_leave_loopback() -> None:
    """Probes come by the pod's IP, and the health listener shows no data."""
    listen = Listen.model_validate({"health": "0.0.0.0:1"})

    assert listen.health == HostPort("0.0.0.0", 1)  # noqa: S104


def test_lookups_need_some_way_in() -> None:
    """A sidecar that nobody can ask is a mistake."""
    assert faults({"listen": {"unix": None}}) == [
        "listen.http: nothing to listen on: give listen.unix or listen.http"
    ]


def test_one_way_in_suffices() -> None:
    """The socket may be closed where lookups come by TCP."""
    listen = Listen.model_validate({"unix": None, "http": "127.0.0.1:1", "health": None})

    assert (listen.unix, listen.http, listen.health) == (None, HostPort("127.0.0.1", 1), None)


def test_listeners_have_ports_of_their_own() -> None:
    """Two listeners on one port would fail at the second one."""
    assert faults({"listen": {"http": "127.0.0.1:8816"}}) == [
        "listen.health: takes the same port as listen.http (127.0.0.1:8816); give it another one"
    ]


def test_socket_path_fits_the_kernel() -> None:
    """The kernel would refuse a longer path with a riddle; it counts bytes, not characters."""
    longest = "/" + "é" * 53

    (fault,) = faults({"listen": {"unix": f"{longest}x"}})

    assert Listen.model_validate({"unix": longest}).unix == Path(longest)
    assert fault == (
        "listen.unix: the path of a Unix socket has at most 107 bytes, "
        "and this one, made absolute, has 108"
    )
