"""Runs checks side by side, each within its time, and gathers what they find.

Knows none of them: one that hangs or breaks hides nothing of what the others see.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from service.doctor.finding import Finding
from service.doctor.interface import Check

CHECK_TIMEOUT_S = 5.0
_END_TIMEOUT_S = 1.0  # then a check that does not end is left behind


async def examine(
    stages: Sequence[Sequence[Check]], *, timeout_s: float = CHECK_TIMEOUT_S
) -> list[Finding]:
    """The findings of all checks, in their order.

    Those of one stage run at the same time, and begin when those before have ended: a stage takes
    `timeout_s` and a second at most.
    """
    gathered: list[Finding] = []
    for checks in stages:
        found: list[list[Finding]] = [[] for _ in checks]
        tasks = [
            asyncio.create_task(_run(check, findings, timeout_s))
            for check, findings in zip(checks, found, strict=True)
        ]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s + _END_TIMEOUT_S)
        # A copy: who is left behind must not add to what was told already.
        gathered += [finding for findings in found for finding in findings]
        gathered += [
            _hanging(check, timeout_s)
            for check, task in zip(checks, tasks, strict=True)
            if not task.done()
        ]
    return gathered


async def _run(check: Check, found: list[Finding], timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s), aclosing(check.findings()) as findings:
            async for finding in findings:
                found.append(finding)  # noqa: PERF401  # each counts when it comes
    except TimeoutError:
        found.append(_hanging(check, timeout_s))
    except Exception as error:  # noqa: BLE001  # one broken check must not hide the others
        message = f"the check broke off: {type(error).__name__}"
        found.append(check.matter.error(message, "look at it by hand, and report this as a bug"))


def _hanging(check: Check, timeout_s: float) -> Finding:
    message = f"no answer within {timeout_s:g} s"
    return check.matter.error(message, "see that it can be reached from here, and is not stuck")
