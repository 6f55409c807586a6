"""One lookup in parts: every position is answered once, and every byte given back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.protocol.answer_budget import FIRST_GUESS_BYTES, AnswerBudget
from lookup_core.protocol.lookup_scheduler import Costs
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from service.stream.stream_lookup import (
    PART_BYTES,
    Asker,
    ChannelSchema,
    HeldAnswer,
    RequestedRecords,
    StreamLookup,
)
from tests.service.engine.running import SCHEMA, customers, running, settings, told, typed
from tests.service.stream.streaming import until

CONNECTION = 3
MIB = 1024 * 1024
NAME = SCHEMA.select(["name"])


@dataclass(frozen=True, slots=True)
class Asking:
    """Somebody who asks `customers`, where at most three keys may wait."""

    store: FakeBackend
    dimension: Dimension
    asker: Asker
    answers: list[Answer] = field(default_factory=list)
    lasts: list[bool] = field(default_factory=list)
    defects: list[Exception] = field(default_factory=list)

    def lookup(self, *keys: int | None, time_s: float = 10.0) -> StreamLookup:
        """A lookup of these keys, whose answers are kept here."""
        return StreamLookup(
            RequestedRecords(typed(*keys).columns, time_s),
            self.asker,
            deliver=self._deliver,
            on_defect=self.defects.append,
        )

    @property
    def used_bytes(self) -> int:
        """What is held for answers to come or made."""
        return self.asker.budget.used_bytes

    @property
    def made_bytes(self) -> int:
        """What the answers that were delivered take."""
        return sum(answer.total_bytes for answer in self.answers)

    def _deliver(self, held: HeldAnswer) -> None:
        assert held.held_bytes == held.answer.total_bytes
        self.answers.append(held.answer)
        self.lasts.append(held.is_last)


@pytest.fixture
async def asking() -> AsyncIterator[Asking]:
    """Somebody to whom nothing was answered yet."""
    async with asking_of(AnswerBudget(64 * MIB)) as made:
        yield made


@asynccontextmanager
async def asking_of(budget: AnswerBudget[int]) -> AsyncIterator[Asking]:
    """The same with so many bytes."""
    budget.open(CONNECTION)
    store = customers()
    async with running(store, settings(keys=3)) as dimension:
        promise = ChannelSchema(SCHEMA.key, DimensionSchema(SCHEMA.key, NAME))
        asker = Asker(CONNECTION, 1, ChannelId(1), dimension, promise, budget, Costs())
        yield Asking(store, dimension, asker)


async def test_parts_answer_their_own_positions(asking: Asking) -> None:
    """Answers name positions of the lookup, whichever part they are from; the last is marked."""
    lookup = asking.lookup(7, 9, None, 8)

    lookup.carry_out(range(2), 0.0)
    lookup.carry_out(range(2, 4), 0.0)
    await until(lambda: any(asking.lasts))

    assert told(asking.answers) == {0: "fetched Ada", 1: "missing", 2: "missing", 3: "fetched Bert"}
    assert asking.lasts == [False] * (len(asking.lasts) - 1) + [True]


async def test_rows_have_the_promised_columns_only(asking: Asking) -> None:
    """The dimension has more: a peer reads what it was told, by its order alone."""
    asking.lookup(7).carry_out(range(1), 0.0)
    await until(lambda: any(asking.lasts))

    assert [answer.rows.schema for answer in asking.answers if answer.rows is not None] == [NAME]


async def test_bytes_are_held_from_the_question_on(asking: Asking) -> None:
    """First what the answer may have, then what it has."""
    asking.store.hold()
    lookup = asking.lookup(7, 8)
    lookup.carry_out(range(2), 0.0)
    assert asking.used_bytes == 2 * Costs().size.record_bytes
    asking.store.release()
    await until(lambda: any(asking.lasts))

    assert asking.used_bytes == asking.made_bytes > 0
    asking.asker.budget.check_invariants()


async def test_size_of_rows_is_learned(asking: Asking) -> None:
    """The next part holds about what the rows of this one had; a missing one is no row."""
    asking.lookup(9).carry_out(range(1), 0.0)
    await until(lambda: any(asking.lasts))
    unknown = asking.asker.costs.size.record_bytes
    asking.lookup(7).carry_out(range(1), 0.0)
    await until(lambda: asking.lasts.count(True) == 2)

    assert FIRST_GUESS_BYTES // 2 < unknown < FIRST_GUESS_BYTES
    assert asking.asker.costs.size.record_bytes < 100


async def test_left_lookup_holds_nothing(asking: Asking) -> None:
    """Its query ends with it; what was answered before is still to be sent. Twice is harmless."""
    lookup = asking.lookup(None, 7, 8)
    asking.store.hold()
    lookup.carry_out(range(3), 0.0)
    await asking.store.wait_for_fetches(1)

    lookup.leave()
    lookup.leave()

    await until(lambda: asking.store.cancelled_total == 1)
    assert told(asking.answers) == {0: "missing"}
    assert asking.used_bytes == asking.made_bytes


async def test_refused_part_is_an_outcome(asking: Asking) -> None:
    """When the dimension takes no more keys, those of the part are told so; the others go on."""
    asking.store.hold()
    lookup = asking.lookup(7, 8, 9, 10)
    lookup.carry_out(range(3), 0.0)
    lookup.carry_out(range(3, 4), 0.0)

    assert told(asking.answers) == {3: "error overloaded"}
    asking.store.release()
    await until(lambda: any(asking.lasts))
    assert told(asking.answers)[0] == "fetched Ada"


async def test_time_counts_from_the_arrival(asking: Asking) -> None:
    """A part that is carried out late has what is left of the time, no more."""
    asking.store.hold()
    lookup = asking.lookup(7, time_s=100.0)
    lookup.carry_out(range(1), 99.99)
    await until(lambda: any(asking.lasts))

    assert told(asking.answers) == {0: "timeout timeout"}


async def test_records_in_line_may_time_out(asking: Asking) -> None:
    """What was never asked for is answered and counted, too; the rest answers for itself."""
    lookup = asking.lookup(7, 8, 9)
    lookup.carry_out(range(1), 0.0)
    lookup.time_out(range(1, 3))
    await until(lambda: any(asking.lasts))

    assert told(asking.answers) == {
        0: "fetched Ada",
        1: "timeout timeout",
        2: "timeout timeout",
    }
    assert asking.dimension.statistics().outcomes[Outcome.TIMEOUT] == 2
    assert asking.used_bytes == asking.made_bytes


async def test_parts_are_small_in_bytes(asking: Asking) -> None:
    """Before anything is known about the rows, and when they are large, few are asked for."""
    lookup = asking.lookup(7, 8)
    assert lookup.records_that_fit(1000) == PART_BYTES // FIRST_GUESS_BYTES
    asking.asker.costs.size.on_rows(1, 10 * PART_BYTES)

    assert lookup.records_that_fit(1000) == 1


async def test_no_room_is_no_part() -> None:
    """Who holds its share already has to wait until some of it is sent."""
    async with asking_of(AnswerBudget(3 * FIRST_GUESS_BYTES)) as asking:
        lookup = asking.lookup(7, 8)
        assert lookup.records_that_fit(2) == 1
        asking.asker.budget.hold(CONNECTION, 1, 2 * FIRST_GUESS_BYTES)

        assert lookup.records_that_fit(2) == 0


async def test_defect_is_handed_on(asking: Asking) -> None:
    """The connection is told, which ends."""
    defect = ZeroDivisionError()

    asking.lookup(7).fail(defect)

    assert asking.defects == [defect]
