"""The document is enough: a client written from it alone speaks with the real service."""

import ast
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.settings import DimensionSettings
from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.several_rows import RowVersions
from service.engine.dimension import Dimension
from tests.conformance.wire_client import Channel, WireClient
from tests.service.engine.running import settings
from tests.service.stream.streaming import AGENT, Setting, Streaming, streaming

PATIENCE_S = 10.0
KEY = pa.schema({"id": pa.int64()})
OURS = {"lookup_core", "service", "spark_client", "tests", "demo", "bench"}


@pytest.fixture
async def service() -> AsyncIterator[Streaming]:
    """The service, with the dimension `customers`."""
    async with streaming() as running:
        yield running


@pytest.fixture
async def client(service: Streaming) -> WireClient:
    """The client, with nothing said yet."""
    socket = (await service.connect()).socket

    async def receive() -> bytes:
        return await socket.receive_bytes(timeout=PATIENCE_S)

    return WireClient(socket.send_bytes, receive)


async def opened(client: WireClient, key: pa.Schema = KEY) -> Channel:
    """Channel 1 to `customers`."""
    await client.greet()
    channel = await client.open(1, "customers", key, columns=["name"])
    assert isinstance(channel, Channel)
    return channel


def keys(*values: int | None) -> pa.RecordBatch:
    """A batch of keys."""
    return pa.record_batch([pa.array(values, pa.int64())], KEY)


def test_client_knows_the_document_only() -> None:
    """Nothing of ours is imported by it."""
    tree = ast.parse((Path(__file__).parent / "wire_client.py").read_text())
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert {name.partition(".")[0] for name in names}.isdisjoint(OURS)


async def test_rows_are_those_of_the_dimension(client: WireClient) -> None:
    """Greeting, opening, a lookup with all kinds of outcomes, time and the end."""
    channel = await opened(client)

    answers = await client.look_up(1, keys(7, 5, None, 6, 8))
    await client.mark(1, 2**63 - 1)
    await client.rest(1)
    await client.cancel(1, 1)
    await client.close(1)

    assert channel.key_names == ["id"]
    assert channel.columns == pa.schema({"name": pa.utf8()})
    assert answers == ["fetched Ada", "missing", "missing", "error ambiguous", "fetched Bert"]


async def test_service_says_who_it_is(client: WireClient) -> None:
    """WELCOME has the agent, and the version that both speak."""
    assert await client.greet() == {"version": 1, "agent": AGENT}


async def test_refusal_leaves_the_number_free(client: WireClient) -> None:
    """A dimension that there is not; then the same number for one that there is."""
    await client.greet()

    refusal = await client.open(1, "nowhere", KEY)

    assert isinstance(refusal, dict)
    assert (refusal["code"], refusal["retryable"]) == ("unknown_dimension", False)
    assert isinstance(await client.open(1, "customers", KEY), Channel)
    assert await client.look_up(1, keys(7)) == ["fetched Ada 1"]


async def test_more_than_the_credit_takes_several_lookups(client: WireClient) -> None:
    """Who keeps to what it has, and takes what it gets, has every key answered."""
    channel = await opened(client)
    count = 3 * channel.credit_records + 1

    answers = await client.look_up(1, keys(*[7, 8, 9] * (count // 3 + 1)))

    assert {answer.partition(" ")[2] for answer in answers} == {"Ada", "Bert", ""}
    assert channel.sequence > 1


async def test_key_is_read_by_position(client: WireClient) -> None:
    """A client that does not know what the dimension calls its key need not know."""
    key = pa.schema({"customer": pa.int16()})
    await opened(client, key)

    assert await client.look_up(1, pa.record_batch([pa.array([8], pa.int16())], key)) == [
        "fetched Bert"
    ]


async def test_channel_without_a_key_describes(client: WireClient) -> None:
    """What the dimension is, without asking it for rows."""
    await client.greet()

    described = await client.open(5, "customers", pa.schema([]))

    assert isinstance(described, Channel)
    assert described.columns == pa.schema({"name": pa.utf8(), "tier": pa.int32()})
    assert described.key_names == ["id"]


VERSIONS = VersionColumns("tier", "until")
HISTORY = DimensionSchema(
    KEY, pa.schema({"name": pa.utf8(), "tier": pa.date32(), "until": pa.date32()})
)
TWO = pa.table(
    {
        "id": [7, 7],
        "name": ["Ida", "Ada"],
        "tier": pa.array([2, 0], pa.date32()),
        "until": pa.array([None, 1], pa.date32()),
    }
)


def with_versions(settings: DimensionSettings, store: FakeBackend) -> Dimension:
    """A dimension with two versions of one key."""
    store.replace(TWO, HISTORY)
    return Dimension(settings, RowVersions(store, VERSIONS))


async def test_versions_of_a_row_are_told() -> None:
    """As of a time: which columns have the times, all versions in order, and a time of its own."""
    async with streaming(Setting(make=with_versions)) as service:
        socket = (await service.connect()).socket
        client = WireClient(socket.send_bytes, lambda: socket.receive_bytes(timeout=PATIENCE_S))
        await client.greet()
        channel = await client.open(1, "customers", KEY, columns=["name"], as_of=True)
        answers = await client.look_up(1, keys(7, 8), event_time_ms=-1)

    assert isinstance(channel, Channel)
    assert channel.versions == ("tier", "until")
    assert channel.columns.names == ["name", "tier", "until"]
    days = [f"datetime.date(1970, 1, {day})" for day in (1, 2, 3)]
    row = f"['Ada', 'Ida'] [{days[0]}, {days[2]}] [{days[1]}, None]"
    assert answers == [f"fetched {row}", "missing"]


async def test_lookup_with_a_time_may_wait() -> None:
    """Where the service says that it waits; the answer is the same, when nothing has changed."""
    waiting = replace(settings(), wait_for_dimension_s=0.01)
    async with streaming(Setting(customers=waiting)) as service:
        socket = (await service.connect()).socket
        client = WireClient(socket.send_bytes, lambda: socket.receive_bytes(timeout=PATIENCE_S))
        channel = await opened(client)
        answers = await client.look_up(1, keys(7, 5), event_time_ms=2**62)

    assert channel.waits
    assert answers == ["fetched Ada", "missing"]


async def test_versions_need_a_dimension_that_has_them(client: WireClient) -> None:
    """As of a time a dimension without versions is refused."""
    await client.greet()

    refusal = await client.open(1, "customers", KEY, as_of=True)

    assert isinstance(refusal, dict)
    assert refusal["code"] == "bad_request"
