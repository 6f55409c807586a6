"""Check runner: checks side by side in processes, each within its time."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from multiprocessing.context import ForkProcess

from service.doctor.check import Check, Seen
from service.doctor.finding import Finding

CHECK_TIMEOUT_S = 5.0
END_TIMEOUT_S = 0.5  # then a check that does not end is left behind

Stages = Sequence[Sequence[Check]]
Tell = Callable[[int, Seen | None], None]  # what a check saw, by its number; None: it has ended


@dataclass(frozen=True, slots=True)
class _Notes:
    """What one check saw; told on as soon as it is known."""

    check: Check
    number: int
    tell: Tell
    seen: list[Seen] = field(default_factory=list)

    def add(self, seen: Seen) -> None:
        self.seen.append(seen)
        self.tell(self.number, seen)


def _tell_nobody(_number: int, _seen: Seen | None) -> None:
    """For who waits for the end."""


async def run_checks(
    stages: Stages, *, timeout_s: float = CHECK_TIMEOUT_S, tell: Tell = _tell_nobody
) -> list[Seen]:
    """What all checks saw, in their order.

    Those of one stage run at the same time, and begin when those before have ended: a stage takes
    `timeout_s` and half a second at most.
    """
    gathered: list[Seen] = []
    begun = 0
    for checks in stages:
        notes = [_Notes(check, number, tell) for number, check in enumerate(checks, begun)]
        begun += len(checks)
        tasks = [asyncio.create_task(_run(each, timeout_s)) for each in notes]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s + END_TIMEOUT_S)
        # Copies: who is left behind must not add to what was told already.
        gathered += [seen for each in notes for seen in each.seen]
        for each, task in zip(notes, tasks, strict=True):
            if not task.done():
                each.add(hanging(each.check, timeout_s))
                gathered.append(each.seen[-1])
            tell(each.number, None)
    return gathered


async def _run(notes: _Notes, timeout_s: float) -> None:
    check = notes.check
    try:
        async with asyncio.timeout(timeout_s), aclosing(check.findings()) as findings:
            async for finding in findings:
                notes.add(finding)  # each counts when it comes
    except TimeoutError:
        notes.add(hanging(check, timeout_s))
    except Exception as error:  # noqa: BLE001  # one broken check must not hide the others
        message = f"the check broke off: {type(error).__name__}"
        notes.add(check.matter.error(message, "look at it by hand, and report this as a bug"))


def hanging(check: Check, timeout_s: float) -> Finding:
    """That a check had no answer in its time."""
    message = f"no answer within {timeout_s:g} s"
    return check.matter.error(message, "see that it can be reached from here, and is not stuck")


Deliver = Callable[[tuple[int, Seen | None]], None]


@dataclass(slots=True)
class _Group:
    """A process, the end of the pipe from it, and what it has told."""

    stages: Stages
    process: ForkProcess
    told: connection.Connection
    seen: dict[int, list[Seen]] = field(default_factory=dict)  # {number of the check: …}
    ended: set[int] = field(default_factory=set)  # numbers of checks


# Copies of this process, not new ones: the checks hold open what nobody can send, and in the
# sidecar's container memory is dear. To be called while there are no other threads.
_FORK = get_context("fork")


def run_checks_apart(groups: Sequence[Stages], *, timeout_s: float = CHECK_TIMEOUT_S) -> list[Seen]:
    """What all checks saw, group by group, at the latest when the longest may take no longer."""
    longest = max(map(len, groups), default=0)
    patience_s = longest * (timeout_s + END_TIMEOUT_S)
    deadline_s = time.monotonic() + patience_s
    begun: list[_Group] = []
    try:
        begun += (_begin(stages, timeout_s, patience_s) for stages in groups)
        _listen(begun, deadline_s)
    finally:
        for group in begun:
            group.process.kill()
            group.process.join(END_TIMEOUT_S)
    return [seen for group in begun for seen in _seen_by(group, patience_s)]


def _begin(stages: Stages, timeout_s: float, patience_s: float) -> _Group:
    told, telling = _FORK.Pipe(duplex=False)
    # Closed here at once: the end of the process must be the end of the pipe.
    with telling:
        process = _FORK.Process(
            target=_run_in_process,
            args=(stages, telling),
            kwargs={"timeout_s": timeout_s, "patience_s": patience_s},
        )
        process.start()
    return _Group(stages, process, told)


def _run_in_process(
    stages: Stages, telling: connection.Connection, *, timeout_s: float, patience_s: float
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it ends it
    # The kernel ends it if nobody else is left to do so.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, patience_s + 2 * END_TIMEOUT_S)
    asyncio.run(run_group(stages, timeout_s, telling.send, end=os._exit))


async def run_group(
    stages: Stages, timeout_s: float, deliver: Deliver, *, end: Callable[[int], object]
) -> None:
    """Examine, and deliver what is seen; then end at once, whatever threads still wait for."""
    await run_checks(stages, timeout_s=timeout_s, tell=lambda number, seen: deliver((number, seen)))
    end(0)


def _listen(groups: Sequence[_Group], deadline_s: float) -> None:
    by_end: dict[object, _Group] = {group.told: group for group in groups}
    while by_end:
        ready = connection.wait(
            [group.told for group in by_end.values()], max(deadline_s - time.monotonic(), 0.0)
        )
        if not ready:
            return
        for end in ready:
            if not _note(by_end[end]):
                del by_end[end]


def _note(group: _Group) -> bool:
    """Note the next that a group tells; False if there is no more."""
    try:
        number, seen = group.told.recv()
    except (EOFError, OSError):  # the latter in the middle of a word
        return False
    if seen is None:
        group.ended.add(number)
    else:
        group.seen.setdefault(number, []).append(seen)
    return True


def _seen_by(group: _Group, patience_s: float) -> Iterator[Seen]:
    number = 0
    is_held_up = False  # what comes after a stage that did not end was not begun
    for checks in group.stages:
        were_held_up = is_held_up
        for check in checks:
            yield from group.seen.get(number, ())
            if number not in group.ended:
                is_held_up = True
                yield _unended(check, group, patience_s, has_begun=not were_held_up)
            number += 1


def _unended(check: Check, group: _Group, patience_s: float, *, has_begun: bool) -> Finding:
    if not has_begun:
        return check.matter.skipped("was not looked at", "see the finding of what it needs")
    # Whoever was ended here, when time was up, was killed.
    if group.process.exitcode in {None, -signal.SIGKILL}:
        return hanging(check, patience_s)
    return check.matter.error(
        "the check broke off: its process has ended", "look at it by hand, and report this as a bug"
    )
