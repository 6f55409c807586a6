"""Where a host's name leads, a socket listens."""

import socket

import pytest

from service.http.sockets import tcp_sockets


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
async def test_address_has_one_socket(host: str, family: socket.AddressFamily) -> None:
    """It listens until the block ends, and on that address alone."""
    async with tcp_sockets(host, 0) as (bound,):
        port = bound.getsockname()[1]
        assert (bound.family, bound.getsockname()[0]) == (family, host)
        socket.create_connection((host, port), 10.0).close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), 10.0)


async def test_name_has_a_socket_for_each_address() -> None:
    """Callers may come by any of them."""
    async with tcp_sockets("localhost", 0) as sockets:
        addresses = {each.getsockname()[0] for each in sockets}

    assert addresses == {each[4][0] for each in socket.getaddrinfo("localhost", 0)}


async def test_taken_port_gives_the_others_back() -> None:
    """One address that cannot be bound is an error, and nothing stays open."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            async with tcp_sockets("localhost", port):
                pass
    socket.create_server(("127.0.0.1", port)).close()
