"""A table changes under open channels: rows of the promised types, or an error that says so."""

from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from service.connectors.memory.backend import FakeBackend
from tests.service.engine.running import ROWS, SCHEMA
from tests.service.stream.streaming import Peer, Streaming, open_frame, streaming

CHANGED = {0: "error schema_changed"}
ADA = {0: "fetched Ada"}
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: may not be read")


@pytest.fixture
async def service() -> AsyncIterator[Streaming]:
    """A service with the dimension `customers`."""
    async with streaming() as running:
        yield running


def change_tier(store: FakeBackend) -> None:
    """The tier of customers is a text now."""
    schema = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8(), "tier": pa.utf8()}))
    store.replace(ROWS.set_column(2, "tier", ROWS["tier"].cast(pa.utf8())), schema)


def change_key(store: FakeBackend) -> None:
    """The keys of customers are 32 bits wide now."""
    schema = DimensionSchema(pa.schema({"id": pa.int32()}), SCHEMA.columns)
    store.replace(ROWS.set_column(0, "id", ROWS["id"].cast(pa.int32())), schema)


async def peer_of(service: Streaming, *columns: str) -> Peer:
    """A peer with channel 1 to these columns of customers."""
    peer = await service.connect()
    await peer.greet()
    await peer.send(open_frame(columns=columns or None))
    peer.columns = (await peer.receive(frames.Opened)).columns
    return peer


async def answers(peer: Peer, *keys: int) -> list[dict[int, str]]:
    """The answers to these keys, each asked for alone, on channel 1."""
    return [await peer.answer(await peer.ask(at, key)) for at, key in enumerate(keys, 1)]


@pytest.mark.parametrize("columns", [(), ("tier",), ("name", "tier")])
async def test_promised_column_of_another_type_is_an_error(
    service: Streaming, columns: tuple[str, ...]
) -> None:
    """A channel never gets rows of types that it was not told, however long it goes on."""
    peer = await peer_of(service, *columns)
    change_tier(service.stores["customers"])

    assert await answers(peer, 7, 7, 8) == [CHANGED] * 3


async def test_unchanged_columns_go_on(service: Streaming) -> None:
    """A channel to other columns notices what it would of a moment's failure, and no more."""
    peer = await peer_of(service, "name")
    change_tier(service.stores["customers"])

    assert await answers(peer, 7, 7, 8) == [CHANGED, ADA, {0: "fetched Bert"}]


async def test_opened_anew_the_rows_come(service: Streaming) -> None:
    """The way on is a channel that is told the new types; the connection may stay."""
    peer = await peer_of(service)
    change_tier(service.stores["customers"])
    await answers(peer, 7)

    opened = await peer.open(channel=2)

    assert opened.columns == pa.schema({"name": pa.utf8(), "tier": pa.utf8()})
    assert await peer.answer(await peer.ask(1, 7, channel=2)) == ADA


async def test_new_column_is_not_sent_to_who_asked_for_all(service: Streaming) -> None:
    """All columns are those that there were when the channel was opened."""
    peer = await peer_of(service)
    columns = pa.schema([*SCHEMA.columns, pa.field("city", pa.utf8())])
    cities = pa.array(["Oslo"] * ROWS.num_rows)
    store = service.stores["customers"]
    store.replace(ROWS.append_column("city", cities), DimensionSchema(SCHEMA.key, columns))

    assert await answers(peer, 7, 7) == [CHANGED, ADA]


async def test_another_key_is_an_error(service: Streaming) -> None:
    """A channel asks in the type of the key that it was told."""
    peer = await peer_of(service, "name")
    change_key(service.stores["customers"])

    assert await answers(peer, 7, 7) == [CHANGED] * 2
    await peer.send(open_frame(2, columns=("name",), key=pa.schema({"id": pa.int32()})))
    peer.columns = (await peer.receive(frames.Opened)).columns
    keys = encode_batch(pa.record_batch({"id": pa.array([7], pa.int32())}))
    await peer.send(frames.Lookup(2, 1, 10_000, 0, keys))
    assert await peer.receive(frames.Credit) == frames.Credit(2, 1, len(keys))
    _, words = await peer.result()
    assert words == ADA


async def test_column_that_comes_back_is_served_again(service: Streaming) -> None:
    """What was promised is true again: nobody has to open anew."""
    peer = await peer_of(service)
    store = service.stores["customers"]
    change_tier(store)
    await answers(peer, 7)
    store.replace(ROWS, SCHEMA)

    peer_of_names = await peer_of(service, "name")  # its lookup meets the second change
    await answers(peer_of_names, 7)
    assert await peer.answer(await peer.ask(2, 7)) in (ADA, {0: "hit Ada"})


async def test_unfit_table_is_each_keys_error(service: Streaming) -> None:
    """Channels to a table that may not be read stay open; so do those to other tables."""
    peer = await peer_of(service)
    other = await service.peer("blobs")
    store = service.stores["customers"]
    store.describe_error = FORBIDDEN
    store.fail_next(1, FORBIDDEN)

    assert await answers(peer, 7, 8) == [{0: "error forbidden"}] * 2
    assert len((await other.answer(await other.ask(1, 1)))[0]) > len("fetched ")


async def test_channel_to_an_unfit_table_is_refused(service: Streaming) -> None:
    """Whoever opens one meanwhile is told why, at once."""
    peer = await peer_of(service)
    store = service.stores["customers"]
    store.describe_error = FORBIDDEN
    store.fail_next(1, FORBIDDEN)
    await answers(peer, 7)

    await peer.send(open_frame(2))

    assert await peer.receive(frames.Failure) == frames.Failure(
        2, ErrorCode.FORBIDDEN, FORBIDDEN.detail, is_retryable=False
    )
