"""Lookups of many channels: fair turns, parts and byte budget."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.protocol.answer_budget import FIRST_GUESS_BYTES, AnswerBudget
from lookup_core.protocol.lookup_scheduler import Costs, Quantum
from service.engine.dimension import Dimension
from service.stream.lookup_queue import LookupQueue
from service.stream.outbox import PIECE_BYTES, AnswerPiece
from service.stream.stream_lookup import (
    PART_BYTES,
    ChannelContext,
    ChannelSchema,
    RequestedRecords,
    StreamLookup,
)
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.running import (
    SCHEMA,
    customers,
    in_words,
    running,
    settings,
    typed,
    until,
)

MIB = 1024 * 1024
NAME = SCHEMA.select(["name"])


# Turns


class SteadyPace(Quantum):
    """Four records in one turn, however long they take."""

    @property
    def records(self) -> int:
        """Always the same."""
        return 4


@dataclass(eq=False)
class Recorded:
    """A lookup that records its calls in a diary."""

    diary: list[str]
    name: str
    channel: ChannelId
    records: int = 10
    deadline_s: float = float("inf")
    pace: Quantum = field(default_factory=SteadyPace)
    has_room: bool = True

    def records_that_fit(self, wanted: int) -> int:
        """All or none."""
        return wanted if self.has_room else 0

    def carry_out(self, records: range, now: float) -> None:
        """Record it, or fail if that is its name."""
        assert now < self.deadline_s
        if self.name == "broken":
            raise ZeroDivisionError
        self.diary.append(f"{self.name} {records.start}-{records.stop}")

    def time_out(self, records: range) -> None:
        """Record it."""
        self.diary.append(f"{self.name} times out {records.start}-{records.stop}")

    def fail(self, error: Exception) -> None:
        """Record it."""
        self.diary.append(f"{self.name} {type(error).__name__}")


@pytest.fixture
async def line() -> AsyncIterator[LookupQueue]:
    """A lookup scheduler that runs as soon as the test waits."""
    made = LookupQueue(clock=asyncio.get_running_loop().time)
    task = asyncio.ensure_future(made.run())
    yield made
    task.cancel()


async def test_channels_take_turns(line: LookupQueue) -> None:
    """The first part begins at once; then channels take turns, and a channel keeps its order."""
    diary: list[str] = []
    for name, channel, records in (("long", 1, 12), ("next", 1, 2), ("short", 2, 3)):
        line.put(Recorded(diary, name, ChannelId(channel), records))
    assert diary == ["long 0-4"]
    while len(line):
        diary.append("other")
        await asyncio.sleep(0)

    assert diary == [
        *("long 0-4", "other", "long 4-8", "other", "short 0-3", "other"),
        *("long 8-12", "other", "next 0-2"),
    ]


async def test_lookups_do_not_hold_up_others(line: LookupQueue) -> None:
    """The queue continues past lookups that fail, are removed, have no room or time out."""
    diary: list[str] = []
    late, stuck, removed, broken, last = (
        Recorded(diary, name, ChannelId(channel))
        for channel, name in enumerate(["late", "stuck", "removed", "broken", "last"])
    )
    late.has_room = stuck.has_room = False
    late.deadline_s = line.now() + 0.02
    for each in (late, stuck, removed):
        line.put(each)
    for _ in range(2):
        line.remove(removed)
    line.put(broken)
    line.put(last)
    await until(lambda: len(line) == 1)
    stuck.has_room = True
    line.on_room()
    await until(lambda: not len(line))

    assert diary == [
        *("removed 0-4", "broken ZeroDivisionError", "broken ZeroDivisionError"),
        *("last 0-4", "last 4-10", "late times out 0-10", "stuck 0-4", "stuck 4-10"),
    ]


def test_quantum_follows_the_work_time() -> None:
    """The thread time of a part, without that of other threads, sets the next quantum."""
    ticks = iter([0.0, 0.008])
    lookup = Recorded([], "a", ChannelId(1), records=800, pace=Quantum())

    LookupQueue(work_clock=lambda: next(ticks)).put(lookup)

    assert lookup.pace.record_s == pytest.approx((5e-6 + 1e-5) / 2)


# Parts of one lookup


@dataclass(frozen=True, slots=True)
class Looking:
    """Lookups of one channel to `customers`, where at most three keys may wait."""

    backend: FakeBackend
    dimension: Dimension
    context: ChannelContext
    answers: list[Answer] = field(default_factory=list)
    lasts: list[bool] = field(default_factory=list)

    def lookup(self, *keys: int | None, deadline_s: float = 10.0) -> StreamLookup:
        """A lookup of these keys; its answers are kept here."""
        return StreamLookup(
            RequestedRecords(typed(*keys).columns, deadline_s, timeout_s=deadline_s),
            self.context,
            deliver=self._deliver,
            on_defect=_raise,
        )

    @property
    def words(self) -> dict[int, str]:
        """The answers in words."""
        return in_words(self.answers)

    @property
    def used_bytes(self) -> int:
        """The bytes that are held for answers."""
        return self.context.budget.used_bytes

    @property
    def answer_bytes(self) -> int:
        """The bytes of the answers that were delivered."""
        return sum(answer.total_bytes for answer in self.answers)

    async def ends(self) -> dict[int, str]:
        """The answers in words, once the last one has arrived."""
        await until(lambda: any(self.lasts))
        assert self.lasts == [False] * (len(self.lasts) - 1) + [True]
        return self.words

    def _deliver(self, held: AnswerPiece) -> None:
        assert held.held_bytes == held.answer.total_bytes
        self.answers.append(held.answer)
        self.lasts.append(held.is_last)


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
async def looking() -> AsyncIterator[Looking]:
    """A channel with 64 MiB for answers."""
    budget = AnswerBudget[int](64 * MIB)
    budget.open(3)
    backend = customers()
    async with running(backend, settings(keys=3)) as dimension:
        schema = ChannelSchema(SCHEMA.key, DimensionSchema(SCHEMA.key, NAME))
        context = ChannelContext(3, 1, ChannelId(1), dimension, schema, budget, Costs())
        yield Looking(backend, dimension, context)


async def test_parts_answer_their_own_positions(looking: Looking) -> None:
    """Positions are those of the lookup; rows have the columns of the channel only."""
    lookup = looking.lookup(7, 9, None, 8)

    lookup.carry_out(range(2), 0.0)
    lookup.carry_out(range(2, 4), 0.0)

    assert await looking.ends() == {0: "fetched Ada", 1: "missing", 2: "missing", 3: "fetched Bert"}
    assert {each.rows.schema for each in looking.answers if each.rows is not None} == {NAME}


async def test_row_size_is_learned(looking: Looking) -> None:
    """The estimate follows the rows; a missing row lowers the first guess by less than half."""
    size = looking.context.costs.size
    looking.lookup(9).carry_out(range(1), 0.0)
    await until(lambda: len(looking.lasts) == 1)
    unknown = size.record_bytes
    looking.lookup(7).carry_out(range(1), 0.0)
    await until(lambda: len(looking.lasts) == 2)

    assert FIRST_GUESS_BYTES // 2 < unknown < FIRST_GUESS_BYTES
    assert size.record_bytes < 100


async def test_timeout_counts_from_arrival(looking: Looking) -> None:
    """A late part has the remaining time as its timeout."""
    looking.backend.hold()
    looking.lookup(7, deadline_s=100.0).carry_out(range(1), 99.99)

    assert await looking.ends() == {0: "timeout timeout"}


@pytest.mark.parametrize(
    ("deadline_s", "now", "timed_out"),
    [(10.0, 9.7, 0), (10.0, 9.75, 2), (10.0, 10.1, 2), (0.2, 0.17, 0), (0.2, 0.19, 2)],
)
async def test_cancel_at_the_deadline_counts_as_timeout(
    looking: Looking, deadline_s: float, now: float, timed_out: int
) -> None:
    """A client cancels when its time is over, up to a tenth of it, or 250 ms, before ours is."""
    looking.backend.hold()
    lookup = looking.lookup(7, 8, deadline_s=deadline_s)
    lookup.carry_out(range(2), 0.0)

    lookup.count_late(now)
    lookup.leave()

    assert looking.dimension.statistics().outcomes[Outcome.TIMEOUT] == timed_out
    assert looking.used_bytes == 0


async def test_parts_are_bounded_in_bytes(looking: Looking) -> None:
    """A part has at most 4 MiB by the estimate, at least one record, and fits the budget."""
    lookup, size = looking.lookup(7, 8), looking.context.costs.size
    assert lookup.records_that_fit(1000) == PART_BYTES // FIRST_GUESS_BYTES
    looking.context.budget.hold(3, 1, 48 * MIB)
    assert lookup.records_that_fit(1000) == 0
    looking.context.budget.release(3, 1, 48 * MIB)
    size.on_rows(1, 10 * PART_BYTES)

    assert lookup.records_that_fit(1000) == 1


# Frames of one answer


def whole(count: int, row_bytes: int) -> AnswerPiece:
    """An answer with rows of this size, the last of its lookup."""
    rows = pa.record_batch({"name": ["x" * row_bytes] * count})
    outcomes = np.full(count, Outcome.HIT, np.uint8)
    positions = np.arange(count, dtype=np.int32)
    answer = Answer(positions, outcomes, np.zeros(count, np.uint32), rows)
    return AnswerPiece(7, 5, is_last=True, answer=answer, held_bytes=answer.total_bytes)


def test_large_answer_is_several_frames() -> None:
    """A RESULT has about 1 MiB of rows; the last one marks the end and frees the bytes."""
    small, large = whole(3, 10), whole(4, PIECE_BYTES // 2)

    pieces = list(large.pieces())

    assert list(small.pieces()) == [small]
    assert [piece.answer.positions.tolist() for piece in pieces] == [[0], [1], [2], [3]]
    assert [piece.is_last for piece in pieces] == [False, False, False, True]
    assert [piece.held_bytes for piece in pieces] == [0, 0, 0, large.held_bytes]
    assert {(piece.channel, piece.sequence) for piece in pieces} == {(7, 5)}
