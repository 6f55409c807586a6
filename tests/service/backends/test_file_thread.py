"""A thread that reads a file while nobody else has to wait."""

import threading
from pathlib import Path

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.backends.file_thread import FileThread

PATIENCE_S = 10.0


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
    thread, gate, done = FileThread(Path("file")), threading.Event(), []

    with pytest.raises(BackendError) as caught:
        await thread.run(lambda: done.append(gate.wait()), timeout_s=0.01)
    gate.set()
    seen = await thread.run(lambda: [*done], timeout_s=PATIENCE_S)
    thread.close()

    assert (caught.value.code, seen) == (ErrorCode.TIMEOUT, [True])
    assert caught.value.detail == "file: not read within 0.01 s"


async def test_closed_thread_begins_nothing() -> None:
    """Closing does not wait for the call under way, and what waits behind it is not begun."""
    thread, gate, begun = FileThread(Path("file")), threading.Event(), []
    for call in (lambda: begun.append(gate.wait()), lambda: begun.append(False)):
        with pytest.raises(BackendError):
            await thread.run(call, timeout_s=0.01)

    thread.close()
    before = [*begun]
    gate.set()
    thread._executor.shutdown()

    assert (before, begun) == ([], [True])


def _name() -> str:
    return threading.current_thread().name


def _break() -> None:
    raise ValueError("broken")
