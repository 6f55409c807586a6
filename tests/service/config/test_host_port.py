"""TCP addresses: how they are written, and who reaches them."""

import pytest

from service.config.host_port import HostPort, parse_host_port


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8815", HostPort("127.0.0.1", 8815)),
        ("[::1]:0", HostPort("::1", 0)),
        ("localhost:65535", HostPort("localhost", 65535)),
        ("db-1.example:80", HostPort("db-1.example", 80)),
    ],
)
def test_addresses_are_read_and_shown_alike(text: str, address: HostPort) -> None:
    """What is read is shown as it was written."""
    parsed = parse_host_port(text)

    assert (parsed, str(parsed)) == (address, text)


@pytest.mark.parametrize(
    "value",
    [
        *(8815, None, "", "8815", ":8815", "localhost", "localhost:", "localhost:65536", "a b:1"),
        *("::1:80", "[zz]:80", "[1.2.3.4]:80", "localhost:-1", "http://a:80", "localhost:8\n"),
    ],
)
def test_other_forms_are_refused(value: object) -> None:
    """Anything but host:port is refused with the accepted form."""
    with pytest.raises(ValueError, match=r"is not host:port, such as 127\.0\.0\.1:8815"):
        parse_host_port(value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_is_this_machine(host: str) -> None:
    """Loopback addresses, and the one name that always means them, stay on this machine."""
    assert HostPort(host, 1).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example", "localhost.example"])  # noqa: S104
def test_all_else_is_beyond_loopback(host: str) -> None:
    """A wildcard, another address or a name that may mean anything is not for certain local."""
    assert not HostPort(host, 1).is_loopback


@pytest.mark.parametrize(
    ("one", "other", "collides"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "0.0.0.0:1", True),
        ("[::]:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_same_port_collides(one: str, other: str, *, collides: bool) -> None:
    """Two listeners cannot have one port of one host; port 0 is a new one each time."""
    assert parse_host_port(one).collides_with(parse_host_port(other)) is collides
