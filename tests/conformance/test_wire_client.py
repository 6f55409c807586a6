"""A client that was written from the document alone speaks with the service."""

import ast
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.settings import DimensionSettings, Match
from service.connectors.several_rows import RowVersions
from service.engine.dimension import Dimension
from tests.conformance.wire_client import Channel, WireClient
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.running import settings
from tests.service.stream.streaming import AGENT, Setting, Streaming, streaming

PATIENCE_S = 10.0
KEY = pa.schema({"id": pa.int64()})
OURS = {"lookup_core", "service", "spark_client", "tests", "demo", "bench"}
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


@pytest.fixture
async def client() -> AsyncIterator[WireClient]:
    """A client of the service with the dimension `customers`, connected."""
    async with streaming() as service:
        yield await client_of(service)


async def client_of(service: Streaming) -> WireClient:
    """A connected client."""
    socket = (await service.connect()).socket
    return WireClient(socket.send_bytes, lambda: socket.receive_bytes(timeout=PATIENCE_S))


async def opened(
    client: WireClient, key: pa.Schema = KEY, *, as_of: bool = False, default: bool = False
) -> Channel:
    """Channel 1 to `customers`."""
    await client.greet()
    channel = await client.open(1, "customers", key, columns=["name"], as_of=as_of, default=default)
    assert isinstance(channel, Channel)
    return channel


def keys(*values: int | None) -> pa.RecordBatch:
    """A batch of keys."""
    return pa.record_batch([pa.array(values, pa.int64())], KEY)


def test_client_imports_nothing_of_ours() -> None:
    """The client is independent of the code that it tests."""
    tree = ast.parse((Path(__file__).parent / "wire_client.py").read_text())
    names = {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }

    assert {name.partition(".")[0] for name in names}.isdisjoint(OURS)


async def test_rows_are_those_of_the_dimension(client: WireClient) -> None:
    """A channel opens, looks keys up with each outcome, sends its time and closes."""
    channel = await opened(client)

    answers = await client.look_up(1, keys(7, 5, None, 6, 8))
    await client.mark(1, 2**63 - 1)
    await client.rest(1)
    await client.cancel(1, 1)
    await client.close(1)

    assert channel.key_names == ["id"]
    assert channel.columns == pa.schema({"name": pa.utf8()})
    assert answers == ["fetched Ada", "missing", "missing", "error ambiguous", "fetched Bert"]


async def test_refusal_leaves_the_number_free(client: WireClient) -> None:
    """After a refusal the same number opens another channel."""
    welcome = await client.greet()

    refusals = [
        await client.open(1, "nowhere", KEY),
        await client.open(1, "customers", KEY, as_of=True),  # it has no versions
    ]

    assert welcome == {"version": 1, "agent": AGENT}
    assert [(each["code"], each["retryable"]) for each in refusals if isinstance(each, dict)] == [
        *(("unknown_dimension", False), ("bad_request", False)),
    ]
    assert isinstance(await client.open(1, "customers", KEY), Channel)
    assert await client.look_up(1, keys(7)) == ["fetched Ada 1"]


async def test_credit_divides_large_lookups(client: WireClient) -> None:
    """Keys beyond the credit are answered over several lookups."""
    channel = await opened(client)
    count = 3 * channel.credit_records + 1

    answers = await client.look_up(1, keys(*[7, 8, 9] * (count // 3 + 1)))

    assert {answer.partition(" ")[2] for answer in answers} == {"Ada", "Bert", ""}
    assert channel.sequence > 1


async def test_key_is_read_by_position(client: WireClient) -> None:
    """The names of key columns are free, and a narrower type fits."""
    key = pa.schema({"customer": pa.int16()})
    await opened(client, key)

    answers = await client.look_up(1, pa.record_batch([pa.array([8], pa.int16())], key))

    assert answers == ["fetched Bert"]


async def test_channel_without_key_describes(client: WireClient) -> None:
    """A channel without key describes the dimension."""
    await client.greet()

    described = await client.open(5, "customers", pa.schema([]))

    assert isinstance(described, Channel)
    assert described.columns == pa.schema({"name": pa.utf8(), "tier": pa.int32()})
    assert described.key_names == ["id"]


def with_versions(settings: DimensionSettings, store: FakeBackend) -> Dimension:
    """A dimension with two versions of one key."""
    store.replace(TWO, HISTORY)
    return Dimension(settings, RowVersions(store, VERSIONS))


async def test_versions_come_in_order() -> None:
    """As of a time, a row has all of its versions, oldest first, and the columns of their times."""
    async with streaming(Setting(make=with_versions)) as service:
        client = await client_of(service)
        channel = await opened(client, as_of=True)
        answers = await client.look_up(1, keys(7, 8), event_time_ms=-1)

    days = [f"datetime.date(1970, 1, {day})" for day in (1, 2, 3)]
    row = f"['Ada', 'Ida'] [{days[0]}, {days[2]}] [{days[1]}, None]"
    assert answers == [f"fetched {row}", "missing"]
    assert channel.versions == ("tier", "until")
    assert channel.columns.names == ["name", "tier", "until"]


async def test_default_row_is_sent_on_request() -> None:
    """OPENED has the row that missing keys get; a key with all of its rows is stated."""
    chosen = replace(settings(), match=Match.ALL, default={"name": "?"})
    async with streaming(Setting(customers=chosen)) as service:
        client = await client_of(service)
        channel = await opened(client, default=True)
        answers = await client.look_up(1, keys(5))

    assert channel.default is not None
    assert channel.default.to_pydict() == {"name": ["?"]}
    assert channel.all_rows
    assert answers == ["default ?"]


async def test_lookup_may_wait_for_its_time() -> None:
    """A service that waits for the time of a lookup says so, and answers in the end."""
    waiting = replace(settings(), wait_for_dimension_s=0.01)
    async with streaming(Setting(customers=waiting)) as service:
        client = await client_of(service)
        channel = await opened(client)
        answers = await client.look_up(1, keys(7, 5), event_time_ms=2**62)

    assert channel.waits
    assert answers == ["fetched Ada", "missing"]
