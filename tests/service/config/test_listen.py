"""The ways in, and their contradictions."""

from pathlib import Path

import pytest

from service.config.host_port import HostPort
from service.config.listen import Listen
from tests.service.config.configuration import faults


def test_socket_and_health_are_the_default() -> None:
    """Nobody has to name the socket or the health listener; lookups by TCP must be asked for."""
    listen = Listen()

    assert listen.unix == Path("/run/sidelook/sidelook.sock")
    assert (listen.http, listen.health) == (None, HostPort("0.0.0.0", 8816))  # noqa: S104


@pytest.mark.parametrize("http", ["0.0.0.0:8815", "[::]:8815", "10.1.2.3:8815", "example:8815"])
def test_lookups_stay_on_loopback(http: str) -> None:
    """Beyond loopback a token and TLS are needed, and there is no TLS yet: refused, and said so."""
    (fault,) = faults({"listen": {"http": http}})

    assert fault == (
        f"listen.http: {http} can be reached from other machines, which needs a token and TLS; "
        "this version has no TLS yet, so listen on 127.0.0.1"
    )


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
