"""Listening sockets: TCP, Unix sockets, and addresses that are taken."""

import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.bound_sockets import bind_fault, bound_sockets, tcp_sockets, unix_socket
from service.config.host_port import HostPort
from service.config.settings import Settings
from tests.service.config.configuration import MINIMAL

PATIENCE_S = 10.0
IN_USE = (
    "another process listens there: find it (ss -ltnp 'sport = :1') and stop it, or set"
    " listen.http to another port"
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EADDRINUSE, "x"), f"{os.strerror(errno.EADDRINUSE)}; {IN_USE}"),
        (OSError(errno.EACCES, "x"), os.strerror(errno.EACCES)),
        (OSError("no address"), "no address"),
    ],
)
def test_bind_fault_has_reason_and_remedy(error: OSError, reason: str) -> None:
    """A listener that cannot be bound is named with setting, address and reason."""
    fault = bind_fault("listen.http", HostPort("127.0.0.1", 1), error)

    assert fault.faults == (f"listen.http: 127.0.0.1:1: {reason}",)


@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])  # noqa: S104 -- also all addresses
def test_taken_port_is_never_shared(tmp_path: Path, host: str, option: int) -> None:
    """A port where any process listens is a fault, also if that process would share it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, option, 1)
        taken.bind((host, 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        listen = {"unix": str(tmp_path / "s.sock"), "http": where, "health": None}
        with (
            pytest.raises(ConfigurationError, match=f"listen.http: {where}: .*find it"),
            bound_sockets(Settings({"listen": listen}, MINIMAL).listen),
        ):
            pass

    assert not (tmp_path / "s.sock").exists()


def test_unknown_host_is_a_fault() -> None:
    """A host name without an address is a configuration error."""
    listen = {"unix": None, "http": "127.0.0.1:0", "health": "no-such-host.invalid:1"}
    with (
        pytest.raises(ConfigurationError) as caught,
        bound_sockets(Settings({"listen": listen}, MINIMAL).listen),
    ):
        pass

    (fault,) = caught.value.faults
    assert fault.startswith("listen.health: no-such-host.invalid:1: ")
    assert "Unknown error" not in fault


def test_closed_listeners_have_no_sockets(tmp_path: Path) -> None:
    """Each listener has its own sockets; early connections wait."""
    listen = {"unix": str(tmp_path / "s.sock"), "http": "127.0.0.1:0", "health": None}
    with bound_sockets(Settings({"listen": listen}, MINIMAL).listen) as sockets:
        (http,) = sockets.http
        socket.create_connection(http.getsockname(), PATIENCE_S).close()

        assert sockets.unix is not None
        assert (sockets.unix.socket.family, sockets.health) == (socket.AF_UNIX, [])


# TCP sockets


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_address_has_one_socket(host: str, family: socket.AddressFamily) -> None:
    """An address has one socket, which listens until the block ends."""
    with tcp_sockets(host, 0) as (bound,):
        port = bound.getsockname()[1]
        assert (bound.family, bound.getsockname()[0]) == (family, host)
        socket.create_connection((host, port), PATIENCE_S).close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), PATIENCE_S)


def test_name_has_a_socket_for_each_address() -> None:
    """A name has a socket for each address; if one cannot be bound, none stays open."""
    with tcp_sockets("localhost", 0) as sockets:
        addresses = {each.getsockname()[0] for each in sockets}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"), tcp_sockets("localhost", port):
            pass

    socket.create_server(("127.0.0.1", port)).close()
    assert addresses == {each[4][0] for each in socket.getaddrinfo("localhost", 0)}


# Unix sockets


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the socket."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder / "sidelook.sock"


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The mask of the process, which must not change."""
    before = os.umask(request.param)
    yield request.param
    assert os.umask(before) == request.param


def refusal(path: Path) -> str:
    """The fault of a failed bind."""
    with pytest.raises(ConfigurationError) as caught, unix_socket(path):
        pass
    (fault,) = caught.value.faults
    return fault


def taken(path: Path) -> str:
    """The fault of a path that another process serves."""
    return f"listen.unix: {path}: another process listens there; stop it, or set another path"


def listening(bound: socket.socket | None) -> None:
    """Let a bound socket accept connections."""
    assert bound is not None
    bound.listen()


def can_connect(path: Path) -> bool:
    """Whether a client can connect to the path."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def leave_behind(path: Path) -> None:
    """The socket of a process that has ended."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@pytest.mark.usefixtures("umask")
def test_socket_is_for_owner_and_group(path: Path) -> None:
    """The mode is 0660, whatever the mask of the process is."""
    with unix_socket(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_live_socket_is_not_replaced(path: Path) -> None:
    """A stale socket is replaced, a live one is not; after its block the path is free."""
    leave_behind(path)
    with unix_socket(path) as first, socket.socket(socket.AF_UNIX) as client:
        listening(first.socket)
        assert refusal(path) == taken(path)
        client.connect(str(path))
    gone = not path.exists()
    with pytest.raises(ZeroDivisionError), unix_socket(path):
        raise ZeroDivisionError
    with unix_socket(path):
        path.unlink()  # by another process

    assert (gone, path.exists()) == (True, False)


def test_foreign_listener_is_not_replaced(path: Path) -> None:
    """The socket of a process without a lock is not replaced while that process listens."""
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(path))
        foreign.listen()

        assert refusal(path) == taken(path)
        assert can_connect(path)


def remove_lock_too(path: Path) -> None:
    """Remove all files of the folder."""
    path.unlink()
    Path(f"{path}.lock").unlink()


def replace_folder(path: Path) -> None:
    """Another folder of the same name."""
    shutil.rmtree(path.parent)
    path.parent.mkdir()


def replace_by_stale_socket(path: Path) -> None:
    """Another socket whose process has ended."""
    path.unlink()
    leave_behind(path)


@pytest.mark.parametrize(
    "lose",
    [
        *(Path.unlink, lambda path: path.rename(path.with_name("other.sock"))),
        *(remove_lock_too, replace_folder, replace_by_stale_socket),
    ],
)
def test_lost_file_is_bound_again(path: Path, lose: Callable[[Path], object]) -> None:
    """A path without the socket's own file is bound again, once, with mode and lock."""
    with unix_socket(path) as unix:
        lose(path)

        listening(unix.renew())

        assert (unix.fault, unix.renew(), can_connect(path)) == (None, None, True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        assert refusal(path) == taken(path)
    assert not path.exists()


def test_socket_of_successor_is_not_stolen(path: Path) -> None:
    """A path that another process has bound since is left to it, also at the end."""
    with ExitStack() as stack:
        unix = stack.enter_context(unix_socket(path))
        remove_lock_too(path)
        with unix_socket(path) as successor:
            listening(successor.socket)
            assert (unix.renew(), unix.fault, can_connect(path)) == (None, taken(path), True)
            stack.close()
            assert can_connect(path)


def test_other_file_is_not_removed(path: Path) -> None:
    """A file in place of the socket stays, and is a fault until it is removed."""
    with unix_socket(path) as unix:
        path.unlink()
        path.touch()
        faults = [unix.renew(), unix.fault]
        path.unlink()
        listening(unix.renew())

        assert can_connect(path)
        path.unlink()
        path.touch()
    assert faults == [
        None,
        f"listen.unix: {path} is not a socket; remove it or choose another path",
    ]
    assert path.exists()


def test_missing_folder_is_a_fault(path: Path) -> None:
    """Without its folder the path cannot be bound; it is bound when the folder is back."""
    with unix_socket(path) as unix:
        shutil.rmtree(path.parent)
        lost = unix.renew(), unix.fault
        path.parent.mkdir()
        listening(unix.renew())

        assert (unix.fault, can_connect(path)) == (None, True)
    assert lost[0] is None
    assert lost[1] is not None
    assert lost[1].startswith(f"listen.unix: {path}: No such file or directory; the folder must")


def test_file_that_returns_is_no_fault(path: Path) -> None:
    """A file that was renamed and is back is served as before."""
    with unix_socket(path) as unix:
        other = path.rename(path.with_name("other.sock"))
        path.touch()
        lost = unix.renew() is None and unix.fault is not None
        other.rename(path)

        assert (lost, unix.renew(), unix.fault) == (True, None, None)


def link_to_a_socket(path: Path) -> None:
    """A link to the socket of a process that has ended."""
    leave_behind(path.with_name("other.sock"))
    path.symlink_to(path.with_name("other.sock"))


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, link_to_a_socket])
def test_other_files_are_not_replaced(path: Path, make: Callable[[Path], None]) -> None:
    """A file, folder or link at the path is never removed."""
    make(path)

    assert refusal(path) == (
        f"listen.unix: {path} is not a socket; remove it or choose another path"
    )
    assert path.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nowhere/s.sock", "No such file or directory"), ("x" * 120, "AF_UNIX path too long")],
)
def test_unusable_path_is_named(tmp_path: Path, name: str, reason: str) -> None:
    """The fault names the path, the reason and the user; the lock is free for the next attempt."""
    path = tmp_path / name
    expected = (
        f"listen.unix: {path}: {reason}; the folder must exist and be writable "
        f"for uid {os.getuid()}, gid {os.getgid()}"
    )

    assert [refusal(path), refusal(path)] == [expected] * 2
