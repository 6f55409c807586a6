"""Channels and their schema: changed tables, versions, waiting dimensions and traces."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.frames import TraceParent
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.fake_tracer import FakeTracer
from tests.service.engine.running import ROWS, SCHEMA
from tests.service.stream.streaming import (
    Peer,
    Setting,
    Streaming,
    open_frame,
    streaming,
    until,
)

CHANGED = {0: "error schema_changed"}
ADA = {0: "fetched Ada"}
NAMED = 'dimension "customers": '  # start of the detail


# A table changes under open channels


@pytest.fixture
async def changing() -> AsyncIterator[Streaming]:
    """A service whose tables a test may change."""
    async with streaming() as service:
        yield service


async def peer_of(service: Streaming, *columns: str) -> Peer:
    """A peer with channel 1 to these columns of customers, or to all."""
    peer = await service.greeted()
    await peer.open(columns=columns or None)
    return peer


def change(backend: FakeBackend, name: str, kind: pa.DataType) -> None:
    """Give a column, or the key, of customers this type."""
    at = ROWS.schema.get_field_index(name)
    rows = ROWS.set_column(at, name, ROWS[name].cast(kind))
    key, columns = (rows.schema.field(0),), list(rows.schema)[1:]
    backend.replace(rows, DimensionSchema(pa.schema(key), pa.schema(columns)))


@pytest.mark.parametrize(
    ("columns", "later"),
    [((), CHANGED), (("tier",), CHANGED), (("name", "tier"), CHANGED), (("name",), ADA)],
)
async def test_channel_never_gets_other_types(
    changing: Streaming, columns: tuple[str, ...], later: dict[int, str]
) -> None:
    """If a column of the channel changed its type, its lookups fail; others go on after one."""
    peer = await peer_of(changing, *columns)
    change(changing.customers, "tier", pa.utf8())

    assert await peer.answers(7, 7) == [CHANGED, later]


async def test_open_channel_gets_no_new_column(changing: Streaming) -> None:
    """A channel to all columns keeps the columns of its OPEN."""
    peer = await peer_of(changing)
    columns = pa.schema([*SCHEMA.columns, pa.field("city", pa.utf8())])
    rows = ROWS.append_column("city", pa.array(["Oslo"] * ROWS.num_rows))
    changing.customers.replace(rows, DimensionSchema(SCHEMA.key, columns))

    assert await peer.answers(7, 7) == [CHANGED, ADA]


async def test_new_column_is_described_before_refusal(changing: Streaming) -> None:
    """A column that the service does not know yet is found by another description."""
    await (await peer_of(changing)).answers(7)
    columns = pa.schema([*SCHEMA.columns, pa.field("city", pa.utf8())])
    rows = ROWS.append_column("city", pa.array(["Oslo"] * ROWS.num_rows))
    changing.customers.replace(rows, DimensionSchema(SCHEMA.key, columns))

    peer = await changing.greeted()
    await peer.send(open_frame(1, columns=("city",)))
    opened = await peer.receive(frames.Opened)
    assert opened.columns == pa.schema({"city": pa.utf8()})
    await peer.send(open_frame(2, columns=("town",)))
    refusal = await peer.receive(frames.Failure)
    assert (refusal.channel, refusal.code) == (2, ErrorCode.UNKNOWN_COLUMN)


async def test_changed_key_needs_a_new_channel(changing: Streaming) -> None:
    """If the key changed its type, a channel's lookups fail; a new channel sends the new type."""
    peer = await peer_of(changing, "name")
    change(changing.customers, "id", pa.int32())

    assert await peer.answers(7, 7) == [CHANGED] * 2
    await peer.open(2, columns=("name",), key=pa.schema({"id": pa.int32()}))
    keys = encode_batch(pa.record_batch({"id": pa.array([7], pa.int32())}))
    await peer.send(frames.Lookup(2, 1, 10_000, 0, keys))
    assert await peer.receive(frames.Credit) == frames.Credit(2, 1, len(keys))
    assert (await peer.result())[1] == ADA


async def test_restored_column_is_served_again(changing: Streaming) -> None:
    """A channel works again once its columns are as they were at OPEN."""
    peer = await peer_of(changing)
    change(changing.customers, "tier", pa.utf8())
    await peer.answers(7)
    change(changing.customers, "tier", pa.int32())
    await (await peer_of(changing, "name")).answers(7)  # its lookup meets the second change

    assert await peer.answer(await peer.look_up(2, 7)) in (ADA, {0: "hit Ada"})


@pytest.mark.parametrize("is_permanent", [False, True])
async def test_refusal_states_its_permanence(changing: Streaming, *, is_permanent: bool) -> None:
    """ERROR is not retryable if only another table or configuration helps."""
    peer = await peer_of(changing)
    gone = BackendError(ErrorCode.TABLE_UNAVAILABLE, "customers: a view", is_permanent=is_permanent)
    changing.customers.describe_error = gone
    changing.customers.fail_next(1, gone)
    await peer.answers(7)

    await peer.send(open_frame(2))
    assert await peer.receive(frames.Failure) == frames.Failure(
        2, ErrorCode.TABLE_UNAVAILABLE, f"{NAMED}{gone.detail}", is_retryable=not is_permanent
    )


# Dimensions with versions


async def test_as_of_needs_versions() -> None:
    """A channel as of a time to a dimension without versions is refused."""
    async with streaming() as service:
        peer = await service.greeted()
        await peer.send(replace(open_frame(), is_as_of=True))
        failure = await peer.receive(frames.Failure)

    detail = 'dimension "customers": it has no versions; omit as_of'
    assert (failure.code, failure.detail) == ("bad_request", detail)


# Traced channels

TRACE = TraceParent(f"00-{'a' * 32}-{'b' * 16}-01", "vendor=1")
UNTRACED = TraceParent(f"00-{'a' * 32}-{'b' * 16}-00")


async def traced(service: Streaming, trace: TraceParent) -> Peer:
    """A peer with channel 1 of this trace."""
    peer = await service.greeted()
    await peer.send(replace(open_frame(), trace=trace))
    peer.columns = (await peer.receive(frames.Opened)).columns
    return peer


async def test_each_lookup_is_a_span() -> None:
    """A LOOKUP is a span with the parent of its channel and the outcomes of its records."""
    tracer = FakeTracer()
    async with streaming(Setting(tracer=tracer)) as service:
        peer = await traced(service, TRACE)
        for sequence in (1, 2):
            await peer.answer(await peer.look_up(sequence, 7, 9))
        await (await traced(service, UNTRACED)).answers(7)

    first, second = tracer.callers
    assert (first.what, first.parent, first.has_ended) == (("customers", 2), TRACE, True)
    assert first.outcomes == {"fetched": 1, "missing": 1}
    assert second.outcomes == {"hit": 1, "missing": 1}


@pytest.mark.parametrize("leave", [Peer.vanish, None], ids=["vanish", "cancel"])
async def test_left_lookup_ends_its_span(leave: Callable[[Peer], None] | None) -> None:
    """The span of a lookup that is cancelled or lost ends once, without outcomes."""
    tracer = FakeTracer()
    async with streaming(Setting(tracer=tracer)) as service:
        service.customers.hold()
        peer = await traced(service, TRACE)
        await peer.look_up(1, 7)
        await service.customers.wait_for_fetches(1)
        if leave is None:
            await peer.send(frames.Cancel(1, 1))
        else:
            leave(peer)
        await until(lambda: tracer.callers[0].has_ended)

    assert (tracer.callers[0].is_left, tracer.callers[0].outcomes) == (True, {})
