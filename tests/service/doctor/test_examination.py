"""Running checks: none hides what the others see."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from service.doctor.backends.database_check import judged
from service.doctor.check_runner import Stages, run_checks
from service.doctor.finding import Finding, Subject
from tests.service.doctor.findings import severities


@dataclass(frozen=True, slots=True)
class Told:
    """A check that tells one finding, and then ends as it is told to."""

    name: str
    then: str = ""  # "hang", "hang on", or "break"

    @property
    def matter(self) -> Subject:
        """Its name."""
        return Subject(self.name, "x")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One, and what comes then."""
        yield self.matter.ok("seen")
        if self.then == "break":
            raise ValueError("no")
        while self.then:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.then == "hang":
                    raise


async def findings_of(stages: Stages, *, timeout_s: float = 5.0) -> list[Finding]:
    """What is found in these stages."""
    return judged(await run_checks(stages, timeout_s=timeout_s), None)


async def test_findings_keep_the_order_of_checks() -> None:
    """Whoever is first to end, the report has the order of the checks."""
    found = await findings_of([[Told("a"), Told("b")], [Told("c")]])

    assert [finding.check for finding in found] == ["a", "b", "c"]


async def test_broken_check_hides_no_other() -> None:
    """What a check saw before it broke is told, that it broke, and all that others saw."""
    found = await findings_of([[Told("a", "break"), Told("b")]])

    assert [(finding.check, finding.severity.value) for finding in found] == [
        ("a", "ok"),
        ("a", "error"),
        ("b", "ok"),
    ]
    assert found[1].message == "the check broke off: ValueError"


async def test_hanging_check_ends_in_time() -> None:
    """A check without an answer is an error after its time, and the next stage begins."""
    found = await findings_of([[Told("a", "hang"), Told("b")], [Told("c")]], timeout_s=0.05)

    assert severities(found) == ["ok", "error", "ok", "ok"]
    assert found[1].message == "no answer within 0.05 s"


async def test_check_that_cannot_be_ended_is_left_behind() -> None:
    """Not even a check that does not let itself be cancelled holds the others up."""
    stuck = Told("a", "hang on")
    try:
        async with asyncio.timeout(10.0):
            found = await findings_of([[stuck, Told("b")]], timeout_s=0.05)
    finally:
        object.__setattr__(stuck, "then", "hang")  # so that the loop of the test can end

    assert [(finding.check, finding.severity.value) for finding in found] == [
        ("a", "ok"),
        ("b", "ok"),
        ("a", "error"),
    ]
