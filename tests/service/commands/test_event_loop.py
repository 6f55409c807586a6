"""The loop that the sidecar runs on."""

import asyncio

import pytest

from service.commands.serve import run_on_event_loop


def test_uvloop_runs_the_sidecar() -> None:
    """Where uvloop is installed, as it is for tests, it is used."""
    loops: list[str] = []

    async def main() -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    run_on_event_loop(main())

    assert loops == ["uvloop"]


def test_errors_come_out() -> None:
    """What the coroutine raises reaches the command."""

    async def main() -> None:
        raise PermissionError("no")

    with pytest.raises(PermissionError, match="no"):
        run_on_event_loop(main())


def test_lone_errors_come_out_unwrapped() -> None:
    """A task group around the sidecar does not hide why it could not start."""

    async def main() -> None:
        async with asyncio.TaskGroup(), asyncio.TaskGroup():
            raise PermissionError("no")

    with pytest.raises(PermissionError, match="no"):
        run_on_event_loop(main())


def test_several_errors_stay_together() -> None:
    """Of several errors none is dropped."""

    async def main() -> None:
        raise ExceptionGroup("two", [ValueError("a"), ValueError("b")])

    with pytest.raises(ExceptionGroup, match="two"):
        run_on_event_loop(main())
