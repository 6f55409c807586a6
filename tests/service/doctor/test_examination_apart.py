"""Groups of checks in processes of their own: none holds the others up."""

import os
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from service.doctor.check import Seen
from service.doctor.check_runner import run_checks_apart, run_group
from service.doctor.finding import Finding, Subject


@dataclass(frozen=True, slots=True)
class Told:
    """A check that tells one finding, and then ends as it is told to."""

    name: str
    then: str = ""  # "spin": no loop, and no other thread, gets a turn; "die"

    @property
    def matter(self) -> Subject:
        """Its name."""
        return Subject(self.name, "x")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """One, and what comes then."""
        yield self.matter.ok("seen")
        while self.then == "spin":
            pass
        if self.then == "die":
            os._exit(1)


def told(seen: list[Seen]) -> list[tuple[str, str, str]]:
    """Who found what."""
    found = [each for each in seen if isinstance(each, Finding)]
    return [(each.check, each.severity.value, each.message) for each in found]


def test_spinning_check_ends_in_time() -> None:
    """What it saw is told, that it hangs, what was not begun, and all that other groups saw."""
    begun_s = time.monotonic()

    seen = run_checks_apart([[[Told("a", "spin")], [Told("b")]], [[Told("c")]]], timeout_s=0.5)

    assert told(seen) == [
        ("a", "ok", "seen"),
        ("a", "error", "no answer within 2 s"),
        ("b", "skipped", "was not looked at"),
        ("c", "ok", "seen"),
    ]
    assert time.monotonic() - begun_s < 10.0


def test_group_that_dies_hides_no_other() -> None:
    """A library that ends its process is a finding of the check that was under way."""
    seen = run_checks_apart([[[Told("a", "die")]], [[], [Told("b")]]])

    assert told(seen) == [
        ("a", "ok", "seen"),
        ("a", "error", "the check broke off: its process has ended"),
        ("b", "ok", "seen"),
    ]


async def test_group_tells_as_it_goes() -> None:
    """Each finding with the number of its check, then that the check has ended, then the end."""
    delivered: list[tuple[int, Seen | None]] = []
    ended: list[int] = []

    await run_group([[Told("a")], [Told("b")]], 1.0, delivered.append, end=ended.append)

    assert [(number, seen is None) for number, seen in delivered] == [
        *((0, False), (0, True)),
        *((1, False), (1, True)),
    ]
    assert ended == [0]
