"""The Unix socket: what its facts mean, and how they are read."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from service.doctor.sidecar.socket_check import (
    SocketCheck,
    SocketFacts,
    read_socket,
    socket_findings,
)
from service.http.sockets import unix_socket
from tests.service.doctor.findings import MATTER, gathered, severities

WELL = SocketFacts(Path("/run/s/s.sock"), mode=stat.S_IFSOCK | 0o660, owner=(185, 185))


def messages(facts: SocketFacts) -> list[str]:
    """What is told."""
    return [finding.message for finding in socket_findings(MATTER, facts)]


def test_served_socket_is_well() -> None:
    """One that is served tells its mode, and by whom if that is seen."""
    assert messages(replace(WELL, lock_holder=7)) == [
        "is served by process 7; mode 0660, uid and gid 185:185"
    ]


@pytest.mark.parametrize(
    ("facts", "message", "remedy"),
    [
        (replace(WELL, has_folder=False), "the folder /run/s does not exist", "mount the volume"),
        (replace(WELL, mode=None), "there is no socket", "start the sidecar"),
        (replace(WELL, mode=None, is_folder_writable=False), "there is no socket", "let uid 0"),
        (replace(WELL, mode=None, lock_holder=9), "there is no socket", "process 9 holds"),
        (replace(WELL, mode=stat.S_IFREG | 0o660), "is not a socket", "remove it"),
        (replace(WELL, connect_errno=errno.ECONNREFUSED), "nobody serves it", "replaces it"),
        (replace(WELL, connect_errno=errno.EACCES), "cannot be opened by uid 0", "fsGroup"),
    ],
)
def test_faults_have_remedies(facts: SocketFacts, message: str, remedy: str) -> None:
    """Whatever keeps an executor from the socket is an error that says what to do."""
    (finding,) = socket_findings(MATTER, facts)

    assert finding.severity == "error"
    assert finding.message.startswith(message)
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (0o660, ["ok"]),
        (0o666, ["error", "ok"]),
        (0o661, ["error", "ok"]),
        (0o600, ["warning", "ok"]),
    ],
)
def test_modes_are_judged(mode: int, expected: list[str]) -> None:
    """A socket for everybody is an error, one that shuts its group out a warning."""
    facts = replace(WELL, mode=stat.S_IFSOCK | mode)

    assert severities(socket_findings(MATTER, facts)) == expected


def test_folder_matters_to_the_owner_only() -> None:
    """That a restart could not bind is seen by who would restart; others may not write anyway."""
    shut = replace(WELL, is_folder_writable=False)

    assert severities(socket_findings(MATTER, replace(shut, me=(185, (185,))))) == ["warning", "ok"]
    assert severities(socket_findings(MATTER, shut)) == ["ok"]


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The path of a socket that is served by this process."""
    with unix_socket(tmp_path / "s.sock") as bound:
        bound.listen()
        yield tmp_path / "s.sock"


async def test_real_socket_is_read(path: Path) -> None:
    """What the sidecar binds has no finding, and this process holds its lock."""
    (finding,) = await gathered(SocketCheck(path).findings())

    assert finding.message.startswith(f"is served by process {os.getpid()}; mode 0660")


def test_left_over_socket_is_refused(tmp_path: Path) -> None:
    """A file whose server ended takes no connection."""
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(tmp_path / "s.sock"))

    facts = read_socket(tmp_path / "s.sock")

    assert (facts.connect_errno, facts.lock_holder) == (errno.ECONNREFUSED, None)


def test_missing_places_are_read(tmp_path: Path) -> None:
    """Neither a missing socket nor a missing folder is an error of the reading."""
    assert read_socket(tmp_path / "s.sock").mode is None
    assert not read_socket(tmp_path / "none" / "s.sock").has_folder
