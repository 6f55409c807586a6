"""A thread that reads a file while nobody else has to wait."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.parquet.file_thread import FileThread, IsLeft

PATIENCE_S = 10.0
HUNG = """
import asyncio, pathlib, threading
from service.connectors.parquet.file_thread import FileThread

async def main():
    thread = FileThread(pathlib.Path("file"))
    try:
        await thread.run(lambda _: threading.Event().wait(), timeout_s=0.01)
    finally:
        thread.close()

asyncio.run(main())
"""


def begin_first(begun: threading.Event) -> None:
    """Let no time pass in the loop before the call has begun, however late its thread is."""
    asyncio.get_running_loop().call_soon(begun.wait, PATIENCE_S)


async def test_calls_run_one_after_the_other() -> None:
    """All in the same thread, which is not the event loop's; what they raise is raised."""
    thread = FileThread(Path("file"))

    names = [await thread.run(_name, timeout_s=PATIENCE_S) for _ in range(2)]
    with pytest.raises(ValueError, match="broken"):
        await thread.run(_break, timeout_s=PATIENCE_S)
    thread.close()

    assert names == [names[0]] * 2
    assert names[0] != threading.current_thread().name


async def test_long_call_is_left_to_its_end() -> None:
    """Whoever waits for it is told in time; the call goes on, and nothing passes it."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), threading.Event()
    done: list[bool] = []

    def call(_: IsLeft) -> None:
        begun.set()
        done.append(gate.wait(PATIENCE_S))

    begin_first(begun)
    with pytest.raises(BackendError) as caught:
        await thread.run(call, timeout_s=0.01)
    gate.set()
    seen = await thread.run(lambda _: [*done], timeout_s=PATIENCE_S)
    thread.close()

    assert (caught.value.code, seen) == (ErrorCode.TIMEOUT, [True])
    assert caught.value.detail == "file: not read within 0.01 s"


async def test_closed_thread_begins_nothing() -> None:
    """Closing does not wait for the call under way, and what waits behind it is not begun."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), threading.Event()
    left: list[bool] = []

    def first(is_left: IsLeft) -> None:
        begun.set()
        gate.wait(PATIENCE_S)
        left.append(is_left())

    begin_first(begun)
    for call in (first, lambda _: left.append(False)):
        with pytest.raises(BackendError):
            await thread.run(call, timeout_s=0.01)

    thread.close()
    before = [*left]
    gate.set()
    thread._thread.join(PATIENCE_S)

    assert (before, left) == ([], [True])


async def test_close_ends_who_waits_for_their_turn() -> None:
    """A call that was not begun never will be; who waits for it is not left waiting."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), threading.Event()

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(thread.run(_wait(begun, gate), timeout_s=PATIENCE_S))
        second = tasks.create_task(thread.run(_name, timeout_s=PATIENCE_S))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        thread.close()
        gate.set()

    assert (first.result(), second.cancelled()) == (False, True)


async def test_call_learns_that_it_is_left() -> None:
    """What it returns or raises afterwards is nobody's, and the thread serves on."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), threading.Event()
    told: list[bool] = []

    def ask(is_left: IsLeft) -> None:
        told.append(is_left())
        begun.set()
        gate.wait(PATIENCE_S)
        told.append(is_left())
        raise ValueError(told)

    begin_first(begun)
    with pytest.raises(BackendError):
        await thread.run(ask, timeout_s=0.05)
    gate.set()
    await thread.run(_name, timeout_s=PATIENCE_S)
    thread.close()

    assert told == [False, True]


def test_process_ends_while_a_disk_hangs() -> None:
    """A call that never returns holds up nobody, also not who wants to end the process."""
    ended = subprocess.run(
        [sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert ended.stderr.endswith("BackendError: timeout: file: not read within 0.01 s\n")


def _wait(begun: threading.Event, gate: threading.Event) -> Callable[[IsLeft], bool]:
    def wait(is_left: IsLeft) -> bool:
        begun.set()
        gate.wait(PATIENCE_S)
        return is_left()

    return wait


def _name(is_left: IsLeft) -> str:
    assert not is_left()
    return threading.current_thread().name


def _break(_: IsLeft) -> None:
    raise ValueError("broken")
