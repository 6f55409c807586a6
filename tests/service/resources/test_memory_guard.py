"""What is carried out when memory is short."""

import asyncio
from dataclasses import dataclass, field

import pytest

from service.resources.memory_guard import MemoryGuard, MemoryStatistics, PressureLevel, Relief
from service.resources.memory_reading import MemoryReading

MIB = 1024 * 1024
BASE_BYTES = 150 * MIB
ALLOWANCE_BYTES = 16 * MIB


@dataclass(slots=True)
class Process:
    """A process whose memory is said, and a diary of what was given up."""

    reading: MemoryReading = field(default_factory=lambda: MemoryReading(BASE_BYTES))
    is_readable: bool = True
    is_settled: bool = True
    diary: list[tuple[str, float | bool]] = field(default_factory=list)

    def guard(self) -> MemoryGuard:
        """Its guard, with a limit of 100 MiB."""
        relief = Relief(
            limit_caches=lambda share: self.diary.append(("caches", share)),
            allow_credit=lambda is_allowed: self.diary.append(("credit", is_allowed)),
            allow_requests=lambda is_allowed: self.diary.append(("requests", is_allowed)),
        )
        return MemoryGuard(
            self.read,
            relief,
            limit_bytes=100 * MIB,
            is_settled=lambda: self.is_settled,
        )

    def read(self) -> MemoryReading:
        """What is said, unless it cannot be read."""
        if not self.is_readable:
            raise OSError(24, "Too many open files")
        return self.reading

    def grow(self, mebibytes: int) -> None:
        """Let it have so much more than at its start, and than any process needs."""
        self.reading = MemoryReading(BASE_BYTES + ALLOWANCE_BYTES + mebibytes * MIB)


@pytest.fixture
def process() -> Process:
    """A process that has just started."""
    return Process()


def test_quiet_process_gives_nothing_up(process: Process) -> None:
    """What it needs to run does not count, nor what is below the threshold."""
    guard = process.guard()
    levels = [guard.look()]
    process.grow(84)

    levels.append(guard.look())

    assert levels == [PressureLevel.NONE] * 2
    assert process.diary == []


def test_more_is_given_up_step_by_step(process: Process) -> None:
    """Caches, then credit, then requests; each is told once, and told when it is over."""
    guard = process.guard()
    guard.look()
    for mebibytes in (86, 93, 96, 50):
        process.grow(mebibytes)
        guard.look()

    told = [entry for entry in process.diary if entry[0] != "caches"]
    assert [entry for entry in process.diary if entry[0] == "caches"] == [
        ("caches", 0.8),
        ("caches", 0.6),
        ("caches", 0.4),
        ("caches", 0.5),
    ]
    assert told == [
        ("credit", True),
        ("requests", True),
        ("credit", False),
        ("requests", True),
        ("credit", False),
        ("requests", False),
        ("credit", True),
        ("requests", True),
    ]


def test_last_look_can_be_told(process: Process) -> None:
    """What was seen, with the level that follows; nothing before the first look."""
    guard = process.guard()
    before = guard.statistics()
    guard.look()
    process.grow(93)

    guard.look()

    resident_bytes = BASE_BYTES + ALLOWANCE_BYTES + 93 * MIB
    assert before == MemoryStatistics(0, 0.0, PressureLevel.NONE)
    assert guard.statistics() == MemoryStatistics(resident_bytes, 0.93, PressureLevel.STOP_CREDIT)


def test_start_is_waited_for(process: Process) -> None:
    """What is loaded until the process is settled is part of its base."""
    process.is_settled = False
    guard = process.guard()
    process.grow(500)
    assert guard.look() is PressureLevel.NONE
    process.is_settled = True

    assert guard.look() is PressureLevel.NONE


def test_limit_of_the_group_counts_as_well(process: Process) -> None:
    """Whichever is nearer: the process must not be killed for what others in its group have."""
    guard = process.guard()
    guard.look()
    process.reading = MemoryReading(BASE_BYTES, 96, 100)

    assert guard.look() is PressureLevel.REFUSE


async def test_guard_looks_until_it_is_cancelled(process: Process) -> None:
    """It looks at once, and again and again."""
    guard = process.guard()
    guard.look()
    process.grow(99)
    running = asyncio.ensure_future(guard.run())
    await asyncio.sleep(0)
    running.cancel()

    assert process.diary[0] == ("caches", 0.8)


def test_group_counts_before_the_start_is_over(process: Process) -> None:
    """Its limit does not wait until all tables are read."""
    process.is_settled = False
    process.reading = MemoryReading(BASE_BYTES, 86, 100)

    assert process.guard().look() is PressureLevel.SHRINK_CACHES


async def test_unreadable_memory_ends_nothing(process: Process) -> None:
    """Without a free file descriptor the guard goes on, as if nothing had changed."""
    guard = process.guard()
    guard.look()
    process.is_readable = False
    running = asyncio.ensure_future(guard.run())
    await asyncio.sleep(0)

    assert not running.done()
    running.cancel()
    assert process.diary == []
