"""The lookups of one channel, between the frames and the dimension."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.arrow_payload import (
    ROWLESS,
    answer_from_batch,
    decode_batch,
    result_schema,
)
from lookup_core.protocol.credit_ledger import RECORD_BYTES, CreditLedger, Grant
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.lookup_scheduler import Costs
from lookup_core.protocol.server_channel import ServerChannel
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from service.stream.channel_lookups import ChannelLookups
from service.stream.lookup_queue import LookupQueue
from service.stream.outbox import AnswerPiece, Outbox, Outgoing
from service.stream.stream_lookup import Asker, ChannelSchema
from tests.service.engine.running import SCHEMA, customers, running, settings, told
from tests.service.stream.streaming import credit_of, lookup_frame, open_frame, until

TOTAL_BYTES = 64 * 1024 * 1024  # for answers
CREDIT = Grant(16 * 1024 // RECORD_BYTES, 16 * 1024)  # of the channel


@dataclass(frozen=True, slots=True)
class Rig:
    """A channel to `customers`, its store, and what it has sent."""

    lookups: ChannelLookups
    store: FakeBackend
    sent: list[Frame]
    line: LookupQueue
    budget: AnswerBudget[int]

    @property
    def words(self) -> list[object]:
        """What was sent, results as (sequence, answers, is it the last)."""
        return [
            (frame.sequence, _told(frame), frame.is_last)
            if isinstance(frame, frames.Result)
            else frame
            for frame in self.sent
        ]

    async def has_sent(self, count: int) -> None:
        """Wait until so many frames were sent."""
        await until(lambda: len(self.sent) >= count)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A channel to the usual customers."""
    async with rig_of(customers()) as made:
        yield made


@asynccontextmanager
async def rig_of(store: FakeBackend) -> AsyncIterator[Rig]:
    """A channel to a store of customers."""
    sent: list[Frame] = []

    async def send(message: bytes) -> None:
        sent.append(decode_frame(message))

    async with running(store, settings(keys=2)) as dimension:
        rig, outbox = _rig(dimension, send)
        tasks = [asyncio.ensure_future(run) for run in (outbox.run(), rig.line.run())]
        yield replace(rig, store=store, sent=sent)
        for task in tasks:
            task.cancel()


def _rig(dimension: Dimension, send: Callable[[bytes], Awaitable[None]]) -> tuple[Rig, Outbox]:
    def on_sending(frame: Outgoing) -> None:
        if isinstance(frame, frames.Credit):
            lookups.on_credit_sent()

    def on_sent(frame: Outgoing) -> None:
        if isinstance(frame, AnswerPiece):
            budget.release(1, frame.channel, frame.held_bytes)

    outbox = Outbox(send, timeout_s=1.0, on_sending=on_sending, on_sent=on_sent)
    line, budget, turn = LookupQueue(), AnswerBudget[int](TOTAL_BYTES), ChannelId(1)
    budget.open(1)
    ledger = CreditLedger[ChannelId](64 * 1024, max_channels=1)
    assert ledger.open(turn) == CREDIT
    lookups = ChannelLookups(
        ServerChannel(1, "customers", "task", ledger=ledger, owner=turn),
        open_frame(),
        asker=Asker(1, 1, turn, dimension, ChannelSchema(SCHEMA.key, SCHEMA), budget, Costs()),
        line=line,
        outbox=outbox,
        on_defect=_raise,
    )
    return Rig(lookups, customers(), [], line, budget), outbox


def _raise(error: Exception) -> None:
    raise error


def _told(result: frames.Result) -> dict[int, str]:
    schema = result_schema(SCHEMA.columns) if result.has_rows else ROWLESS
    batch = decode_batch(result.payload, schema)
    return told([answer_from_batch(batch, has_rows=result.has_rows)])


async def test_last_answer_comes_with_its_credit(rig: Rig) -> None:
    """One RESULT for each kind of answer, the last one marked, with the credit before it."""
    asked = lookup_frame(1, 7, None)
    rig.lookups.on_lookup(asked)
    await rig.has_sent(3)

    assert rig.words == [
        (1, {1: "missing"}, False),
        credit_of(asked),
        (1, {0: "fetched Ada"}, True),
    ]


async def test_empty_lookup_has_an_empty_answer(rig: Rig) -> None:
    """Whoever waits for the last answer gets one."""
    asked = lookup_frame(1)
    rig.lookups.on_lookup(asked)
    await rig.has_sent(2)

    assert rig.words == [credit_of(asked), (1, {}, True)]


async def test_refused_lookup_is_an_outcome(rig: Rig) -> None:
    """When the dimension takes no more keys, every key of the lookup is told so."""
    rig.store.hold()
    rig.lookups.on_lookup(lookup_frame(1, 7))
    asked = lookup_frame(2, 8, 9)
    rig.lookups.on_lookup(asked)
    await rig.has_sent(2)

    assert rig.words == [
        credit_of(asked),
        (2, {0: "error overloaded", 1: "error overloaded"}, True),
    ]


async def test_violation_asks_nothing(rig: Rig) -> None:
    """What the peer may not send does not reach the dimension."""
    with pytest.raises(ProtocolViolation) as caught:
        rig.lookups.on_lookup(lookup_frame(1, *range(CREDIT.records + 1)))

    assert caught.value.code is ErrorCode.CREDIT_VIOLATION
    assert rig.store.batches == []


async def test_cancel_gives_credit_without_an_answer(rig: Rig) -> None:
    """A lookup that is not wanted any more ends with its credit; a second time is harmless."""
    rig.store.hold()
    asked = lookup_frame(1, 7)
    rig.lookups.on_lookup(asked)
    rig.lookups.on_cancel(1)
    rig.lookups.on_cancel(1)
    rig.lookups.on_cancel(9)
    await rig.has_sent(1)

    assert rig.words == [credit_of(asked)]
    rig.lookups.on_close()
    await rig.has_sent(2)
    assert rig.words == [credit_of(asked), frames.Closed(1)]


async def test_closed_comes_last_and_once(rig: Rig) -> None:
    """CLOSED follows the credit of the last lookup, however often CLOSE was said."""
    rig.store.hold()
    first, second = lookup_frame(1, 7), lookup_frame(2, 9)
    rig.lookups.on_lookup(first)
    rig.lookups.on_lookup(second)
    rig.lookups.on_close()
    rig.lookups.on_close()
    rig.store.release()
    await rig.has_sent(5)

    assert [frame for frame in rig.sent if not isinstance(frame, frames.Result)] == [
        credit_of(first),
        credit_of(second),
        frames.Closed(1),
    ]
    assert rig.sent[-1] == frames.Closed(1)


async def test_abandoned_lookups_are_left(rig: Rig) -> None:
    """When the connection is gone nobody waits: the query ends, and nothing more is sent."""
    rig.store.hold()
    rig.lookups.on_lookup(lookup_frame(1, 7))
    await rig.store.wait_for_fetches(1)

    rig.lookups.abandon()
    rig.lookups.abandon()

    await until(lambda: rig.store.cancelled_total == 1)
    assert rig.sent == []


async def test_lookup_in_line_may_be_cancelled(rig: Rig) -> None:
    """What was not carried out yet is never asked for; the credit goes back at once."""
    rig.budget.hold(1, 1, TOTAL_BYTES)  # no room
    asked = lookup_frame(1, 7)
    rig.lookups.on_lookup(asked)
    rig.lookups.on_cancel(1)
    rig.budget.release(1, 1, TOTAL_BYTES)
    rig.line.on_room()
    await rig.has_sent(1)

    assert (rig.words, rig.store.batches, len(rig.line)) == ([credit_of(asked)], [], 0)


async def test_lookup_in_line_has_its_time(rig: Rig) -> None:
    """Without room for its answer it ends as any other that gets none."""
    rig.budget.hold(1, 1, TOTAL_BYTES)
    asked = lookup_frame(1, 7, 8, timeout_ms=10)
    rig.lookups.on_lookup(asked)
    await rig.has_sent(2)

    late = {0: "timeout timeout", 1: "timeout timeout"}
    assert rig.words == [credit_of(asked), (1, late, True)]


async def test_lookup_goes_on_when_there_is_room(rig: Rig) -> None:
    """It keeps its place: what was asked after it comes after it."""
    rig.budget.hold(1, 1, TOTAL_BYTES)
    first, second = lookup_frame(1, None), lookup_frame(2, None, None)
    rig.lookups.on_lookup(first)
    rig.lookups.on_lookup(second)
    rig.budget.release(1, 1, TOTAL_BYTES)
    rig.line.on_room()
    await rig.has_sent(4)

    both = {0: "missing", 1: "missing"}
    assert rig.words == [
        *[credit_of(first), (1, {0: "missing"}, True)],
        *[credit_of(second), (2, both, True)],
    ]


async def test_half_done_lookup_may_be_cancelled(rig: Rig) -> None:
    """Its parts at the dimension are left, the rest is not asked for, all bytes are given back."""
    rig.store.hold()
    rig.budget.open(2)
    rig.budget.hold(2, 1, TOTAL_BYTES)  # so there is room for one record, and no more
    rig.lookups.on_lookup(asked := lookup_frame(1, 7, 8))
    assert len(rig.line) == 1
    rig.lookups.on_cancel(1)
    await rig.has_sent(1)

    assert rig.words == [credit_of(asked)]
    assert (rig.budget.used_bytes, len(rig.line)) == (TOTAL_BYTES, 0)


async def test_abandoned_lookups_hold_nothing(rig: Rig) -> None:
    """Whatever state they are in: waiting for rows, or in line."""
    rig.store.hold()
    rig.lookups.on_lookup(lookup_frame(1, 7))
    rig.budget.hold(1, 1, TOTAL_BYTES)
    rig.lookups.on_lookup(lookup_frame(2, 8))

    rig.lookups.abandon()

    assert (rig.budget.used_bytes, len(rig.line)) == (TOTAL_BYTES, 0)


async def test_wide_rows_come_in_several_frames() -> None:
    """No RESULT grows beyond what a peer takes in one message, fetched or cached."""
    names = [letter * 5_000_000 for letter in "ab"]
    rows = {"id": [1, 2], "name": names, "tier": pa.array([1, 2], pa.int32())}

    async with rig_of(FakeBackend(pa.table(rows), SCHEMA)) as rig:
        rig.lookups.on_lookup(lookup_frame(1, 1, 2))
        await rig.has_sent(3)
        rig.lookups.on_lookup(lookup_frame(2, 1, 2))
        await rig.has_sent(6)

        results = [frame for frame in rig.sent if isinstance(frame, frames.Result)]
        assert [frame.is_last for frame in results] == [False, True] * 2
        assert max(len(frame.payload) for frame in results) < 6_000_000
