"""The Unix socket: for its owner and group, for one process at a time, and never left behind."""

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.http.sockets import unix_socket


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where to listen."""
    return tmp_path / "sidelook.sock"


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The process's mask, which must not matter and must be left as it was."""
    before = os.umask(request.param)
    yield request.param
    assert os.umask(before) == request.param


def refusal(path: Path) -> str:
    """The one fault that keeps a socket from being bound."""
    with pytest.raises(ConfigurationError) as caught, unix_socket(path):
        pass
    (fault,) = caught.value.faults
    return fault


def leave_behind(path: Path) -> None:
    """A socket whose process is gone."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


@pytest.mark.usefixtures("umask")
def test_socket_is_for_owner_and_group(path: Path) -> None:
    """Whatever the mask of the process is, the mode is 0660."""
    with unix_socket(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_bound_socket_can_be_connected(path: Path) -> None:
    """What comes out is a stream socket at the path."""
    with unix_socket(path) as bound, socket.socket(socket.AF_UNIX) as client:
        bound.listen()
        client.connect(str(path))

        assert bound.getsockname() == str(path)


def test_socket_is_removed_in_the_end(path: Path) -> None:
    """After the block nothing is at the path, also when it fails."""
    with pytest.raises(ZeroDivisionError), unix_socket(path):
        raise ZeroDivisionError

    assert not path.exists()


def test_removed_socket_is_no_fault(path: Path) -> None:
    """Whoever removed the file meanwhile did our work."""
    with unix_socket(path):
        path.unlink()


def test_stale_socket_is_replaced(path: Path) -> None:
    """The socket of a process that was killed is in nobody's way."""
    leave_behind(path)

    with unix_socket(path) as bound:
        assert bound.getsockname() == str(path)


def test_live_socket_is_not_stolen(path: Path) -> None:
    """While one serves, a second one is refused, and the first one stays reachable."""
    with unix_socket(path) as first, socket.socket(socket.AF_UNIX) as client:
        first.listen()

        assert refusal(path) == f"listen.unix: {path}: already running in another process"
        client.connect(str(path))


def test_next_process_may_serve(path: Path) -> None:
    """When one has ended, the path is free for another."""
    with unix_socket(path):
        pass
    with unix_socket(path):
        assert path.exists()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir], ids=["file", "folder"])
def test_other_files_are_not_removed(path: Path, make: object) -> None:
    """Only a socket is ever replaced; anything else at the path is somebody's."""
    assert callable(make)
    make(path)

    assert refusal(path) == (
        f"listen.unix: {path} is not a socket; remove it or choose another path"
    )
    assert path.exists()


def test_link_to_a_socket_is_not_removed(path: Path, tmp_path: Path) -> None:
    """A link is no socket, whatever it points at."""
    leave_behind(tmp_path / "other.sock")
    path.symlink_to(tmp_path / "other.sock")

    assert "is not a socket" in refusal(path)


def test_missing_folder_is_told(tmp_path: Path) -> None:
    """The fault names the path, the reason, and who would need the folder."""
    path = tmp_path / "nowhere" / "sidelook.sock"

    assert refusal(path) == (
        f"listen.unix: {path}: No such file or directory; the folder must exist and be writable "
        f"for uid {os.getuid()}, gid {os.getgid()}"
    )


def test_long_path_is_told(tmp_path: Path) -> None:
    """A path that is too long for a socket is refused in words, and the lock is free again."""
    path = tmp_path / ("x" * 120)

    assert refusal(path).startswith(f"listen.unix: {path}: AF_UNIX path too long; ")
    assert refusal(path).startswith(f"listen.unix: {path}: AF_UNIX path too long; ")
