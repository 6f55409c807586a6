"""Lookups in line: begun at once if nobody is before them, otherwise in turns."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from lookup_core.dimension.batcher import ChannelId
from lookup_core.protocol.lookup_scheduler import Quantum
from service.stream.lookup_queue import LookupQueue
from tests.service.stream.streaming import until

LATE_S = 60.0


class Diarist:
    """A lookup that writes down what happens to it."""

    def __init__(
        self, diary: list[str], name: str, *, turn: int, records: int = 10, time_s: float = LATE_S
    ) -> None:
        self.turn = ChannelId(turn)
        self.records = records
        self.deadline_s = LookupQueue().now() + time_s
        self.pace: Quantum = SteadyPace()
        self.has_room = True
        self.defect: Exception | None = None
        self._diary = diary
        self._name = name

    def records_that_fit(self, wanted: int) -> int:
        """All or none."""
        return wanted if self.has_room else 0

    def carry_out(self, records: range, now: float) -> None:
        """Note it, unless there is a defect."""
        assert now < self.deadline_s
        if self.defect is not None:
            raise self.defect
        self._diary.append(f"{self._name} {records.start}-{records.stop}")

    def time_out(self, records: range) -> None:
        """Note it."""
        self._diary.append(f"{self._name} late {records.start}-{records.stop}")

    def fail(self, error: Exception) -> None:
        """Note it."""
        self._diary.append(f"{self._name} {type(error).__name__}")


class SteadyPace(Quantum):
    """Four records in one go, whatever they take."""

    @property
    def records(self) -> int:
        """Always the same."""
        return 4


@pytest.fixture
def diary() -> list[str]:
    """What happened, in order."""
    return []


@pytest.fixture
async def line() -> AsyncIterator[LookupQueue]:
    """A line that is carried out as soon as the test waits."""
    line = LookupQueue()
    task = asyncio.ensure_future(line.run())
    yield line
    task.cancel()


async def test_first_lookup_is_begun_at_once(diary: list[str]) -> None:
    """With nobody before it a lookup waits for nothing, not even for the task of the line."""
    line = LookupQueue()

    line.put(Diarist(diary, "a", turn=1, records=5))

    assert (diary, len(line)) == (["a 0-5"], 0)


async def test_others_come_between_the_parts(line: LookupQueue, diary: list[str]) -> None:
    """A long lookup is carried out in parts; another channel's short one waits for one of them."""
    line.put(Diarist(diary, "long", turn=1, records=12))
    line.put(Diarist(diary, "short", turn=2, records=3))
    assert diary == ["long 0-4"]
    await until(lambda: not len(line))

    assert diary == ["long 0-4", "long 4-8", "short 0-3", "long 8-12"]


async def test_loop_is_free_between_parts(line: LookupQueue, diary: list[str]) -> None:
    """Whatever else is to be done gets its turn after each part."""
    line.put(Diarist(diary, "a", turn=1, records=12))
    while len(line):
        diary.append("other")
        await asyncio.sleep(0)

    assert diary == ["a 0-4", "other", "a 4-8", "other", "a 8-12"]


async def test_lookups_of_a_channel_keep_their_order(line: LookupQueue, diary: list[str]) -> None:
    """What was asked first is carried out first, to its end."""
    line.put(Diarist(diary, "first", turn=1, records=8))
    line.put(Diarist(diary, "second", turn=1, records=2))
    await until(lambda: not len(line))

    assert diary == ["first 0-4", "first 4-8", "second 0-2"]


async def test_removed_lookup_is_not_carried_on(line: LookupQueue, diary: list[str]) -> None:
    """Whoever leaves the line leaves it at once; a second time is harmless."""
    lookup = Diarist(diary, "a", turn=1, records=12)
    line.put(lookup)
    line.remove(lookup)
    line.remove(lookup)
    line.put(Diarist(diary, "b", turn=2, records=1))

    assert (diary, len(line)) == (["a 0-4", "b 0-1"], 0)


async def test_lookup_without_room_is_passed_over(line: LookupQueue, diary: list[str]) -> None:
    """It waits without holding up others, and goes on when there is room."""
    stuck = Diarist(diary, "stuck", turn=1, records=3)
    stuck.has_room = False
    line.put(stuck)
    line.put(Diarist(diary, "b", turn=2, records=3))
    assert diary == ["b 0-3"]
    stuck.has_room = True
    line.on_room()
    await until(lambda: not len(line))

    assert diary == ["b 0-3", "stuck 0-3"]


async def test_lookup_in_line_may_be_late(line: LookupQueue, diary: list[str]) -> None:
    """When its time is over the rest of it is told so, though nothing else happens."""
    stuck = Diarist(diary, "stuck", turn=1, time_s=0.02)
    stuck.has_room = False
    line.put(stuck)
    await until(lambda: not len(line))

    assert diary == ["stuck late 0-10"]


async def test_defect_concerns_its_lookup(line: LookupQueue, diary: list[str]) -> None:
    """The line goes on, for all others and at any later time."""
    broken = Diarist(diary, "broken", turn=1, records=3)
    broken.defect = ZeroDivisionError()
    line.put(broken)
    line.put(Diarist(diary, "b", turn=2, records=8))
    await until(lambda: not len(line))

    assert diary == ["broken ZeroDivisionError", "b 0-4", "b 4-8"]


async def test_pace_learns_from_the_work_clock(diary: list[str]) -> None:
    """What a part took, without what others of the machine took meanwhile, sets the next one."""
    ticks = iter([0.0, 0.008])
    line = LookupQueue(work_clock=lambda: next(ticks))
    lookup = Diarist(diary, "a", turn=1, records=800)
    lookup.pace = Quantum()

    line.put(lookup)

    assert lookup.pace.record_s == pytest.approx((5e-6 + 1e-5) / 2)
