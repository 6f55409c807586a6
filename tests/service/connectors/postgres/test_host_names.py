"""Resolution of host names: one at a time of each name, and none holds up another."""

import asyncio
import socket
from collections import Counter
from threading import Event, Thread

import pytest

from service.connectors.postgres.sessions import PostgresSettings
from service.postgres_dsn import HostNames, host_names

PATIENCE_S = 30.0


class Names:
    """A name server that does not respond for `slow`, and does not know `unknown`."""

    def __init__(self) -> None:
        self.looked_up = Counter[str]()
        self.may_respond = Event()

    def look_up(self, name: str) -> None:
        """Resolve a name, in the thread of the caller."""
        self.looked_up[name] += 1
        if name == "slow":
            self.may_respond.wait(PATIENCE_S)
        if name == "unknown":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")


def settings(hosts: str, connect_timeout_s: float = PATIENCE_S) -> PostgresSettings:
    """A database at these hosts."""
    dsn = f"postgresql://u:p@{hosts}/d"
    return PostgresSettings(dsn, "t", ("id",), connect_timeout_s=connect_timeout_s)


async def test_silent_name_server_takes_one_thread() -> None:
    """Attempts to connect to a name that does not resolve share one resolution; others go on."""
    server = Names()
    names = HostNames(server.look_up)

    attempts = [names.resolved_dsn(settings("slow", 0.01)) for _ in range(20)]
    failures = await asyncio.gather(*attempts, return_exceptions=True)
    known = await names.resolved_dsn(settings("known"))
    waiting = asyncio.ensure_future(names.resolved_dsn(settings("slow")))
    await asyncio.sleep(0)
    server.may_respond.set()

    assert {type(failure) for failure in failures} == {socket.gaierror}
    assert known == settings("known").dsn
    assert await waiting == settings("slow").dsn
    assert server.looked_up == {"slow": 1, "known": 1}


async def test_first_name_that_resolves_counts() -> None:
    """Names before it have failed at once, and fail again; names behind it are not resolved yet."""
    server = Names()
    names = HostNames(server.look_up)

    found = await names.resolved_dsn(settings("unknown,known,slow"))
    of_unknown = await names.resolved_dsn(settings("unknown"))

    assert found == settings("unknown,known,slow").dsn
    assert of_unknown == settings("unknown").dsn  # the attempt to connect reports it
    assert server.looked_up == {"unknown": 2, "known": 1}


async def test_name_is_resolved_after_a_lack_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that gets no thread fails; the next one resolves the name."""
    server = Names()
    names = HostNames(server.look_up)

    with monkeypatch.context() as limited:
        limited.setattr(Thread, "start", no_thread)
        with pytest.raises(OSError, match="no thread"):
            await names.resolved_dsn(settings("known"))

    assert await names.resolved_dsn(settings("known")) == settings("known").dsn


def no_thread(_: Thread) -> None:
    """The error of Python at the limit of threads."""
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("dsn", "names"),
    [
        ("postgresql://u:p@db.example:5432,other/d", ["db.example", "other"]),
        ("postgresql://u@/d?host=a,b", ["a", "b"]),
        *(("postgresql://u@127.0.0.1:1,h/d", []), ("postgresql://u@[::1]:2,h/d", [])),
        *(("postgresql://u@h,127.0.0.1:1,i/d", ["h"]), ("postgresql://u@?host=/run,h", [])),
        ("postgresql://u@%2Frun%2Fpostgresql/d", []),
        ("postgresql://u@/d?host=/run", []),
        ("postgresql://", []),
    ],
)
def test_only_names_are_resolved(dsn: str, names: list[str]) -> None:
    """An address may have several names; from the first IP address or socket on, none counts."""
    assert list(host_names(dsn)) == names
