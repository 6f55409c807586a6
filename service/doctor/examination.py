"""Runs checks side by side, each within its time, and gathers what they find.

Knows none of them: one that hangs or breaks hides nothing of what the others see. For what holds
the whole process up see `examination_apart`.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from service.doctor.finding import Finding
from service.doctor.interface import Check, Seen

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


async def examine(
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
