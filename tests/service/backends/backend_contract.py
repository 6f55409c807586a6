"""What every backend does, whatever its store: one suite, run for each implementation.

Not collected by itself: a test module subclasses it and says how a store with given rows is made.
"""

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.connectors.ports.backend import Backend, FetchedRows

# (rows, key columns) -> the backend of a store that holds these rows; not yet described
OpenBackend = Callable[[pa.Table, Sequence[str]], AbstractAsyncContextManager[Backend]]

TIMEOUT_S = 10.0

AIRPORTS = pa.table(
    {
        "code": pa.array(["JFK", "LGA", "EWR"]),
        "name": pa.array(["Kennedy", None, "Newark"]),
        "altitude": pa.array([13, 22, None], pa.int32()),
    }
)

# {what: (type, a key that has a row, another that has none)}
KEYS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int2": (pa.int16(), -(2**15), 0),
    "int4": (pa.int32(), 2**31 - 1, -1),
    "int8": (pa.int64(), -(2**63), 2**63 - 1),
    "bool": (pa.bool_(), False, True),
    "text": (pa.utf8(), "a", "a "),
    "bytes": (pa.binary(), b"\x00\xff", b"\x00"),
    "date": (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (
        pa.timestamp("us"),
        dt.datetime(2013, 1, 1, 5, 0, 0, 1),  # noqa: DTZ001  a type without a zone
        dt.datetime(2013, 1, 1, 5),  # noqa: DTZ001  as above
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    ),
    "decimal": (pa.decimal128(38, 2), Decimal("1.5"), Decimal("-99999999.99")),
}

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


# The fixture holds nothing between examples, and each subclass is a store of its own.
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]


class BackendContract:
    """Subclasses override the fixture `open_backend`."""

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """How the store under test is made."""
        raise NotImplementedError

    async def test_describes_the_exact_types(self, open_backend: OpenBackend) -> None:
        """Key and columns have the types that the rows have, in the order of the store."""
        async with open_backend(AIRPORTS, ["code"]) as backend:
            schema = await backend.describe(timeout_s=TIMEOUT_S)

        assert schema.key == pa.schema({"code": pa.utf8()})
        assert schema.columns == pa.schema({"name": pa.utf8(), "altitude": pa.int32()})

    async def test_rows_belong_to_their_ordinals(self, open_backend: OpenBackend) -> None:
        """Each row comes with the position of its key in the batch; a missing key has no row."""
        found = await lookup(open_backend, AIRPORTS, {"code": ["EWR", "???", "JFK", "LGA"]})

        assert found == [
            (0, {"name": "Newark", "altitude": None}),
            (2, {"name": "Kennedy", "altitude": 13}),
            (3, {"name": None, "altitude": 22}),
        ]

    async def test_no_keys_give_no_rows(self, open_backend: OpenBackend) -> None:
        """An empty batch is answered with no rows, of the right type."""
        fetched = await fetch(open_backend, AIRPORTS, {"code": []})

        assert fetched.ordinals.tolist() == []
        assert fetched.rows.schema == pa.schema({"name": pa.utf8(), "altitude": pa.int32()})

    async def test_unknown_keys_give_no_rows(self, open_backend: OpenBackend) -> None:
        """When no key has a row, the rows are none, of the right type."""
        fetched = await fetch(open_backend, AIRPORTS, {"code": ["", "jfk", "JFK "]})

        assert fetched.ordinals.tolist() == []
        assert fetched.rows.schema == pa.schema({"name": pa.utf8(), "altitude": pa.int32()})

    async def test_empty_store_has_no_rows(self, open_backend: OpenBackend) -> None:
        """A store without rows answers like any other."""
        found = await lookup(open_backend, AIRPORTS.slice(0, 0), {"code": ["JFK"]})

        assert found == []

    async def test_all_parts_of_a_key_match(self, open_backend: OpenBackend) -> None:
        """A composite key is compared part by part; the same letters cut elsewhere are another."""
        rows = pa.table({"a": ["x", "x|y", "x"], "b": ["y|z", "z", "y"], "n": [1, 2, 3]})

        found = await lookup(open_backend, rows, {"a": ["x|y", "x", "x|y"], "b": ["z", "y|z", "y"]})

        assert found == [(0, {"n": 2}), (1, {"n": 1})]

    @pytest.mark.parametrize("what", KEYS)
    async def test_keys_of_each_type_are_found(self, open_backend: OpenBackend, what: str) -> None:
        """A key of any type that keys may have finds its row, at the ends of its range, too."""
        kind, present, absent = KEYS[what]
        rows = pa.table({"k": pa.array([present], kind), "v": ["here"]})

        found = await lookup(open_backend, rows, {"k": [absent, present]})

        assert found == [(1, {"v": "here"})]

    @pytest.mark.parametrize("what", KEYS)
    async def test_columns_of_each_type_are_read(
        self, open_backend: OpenBackend, what: str
    ) -> None:
        """A value comes back as it is stored, and a null as a null."""
        kind, present, absent = KEYS[what]
        rows = pa.table({"k": [1, 2, 3], "v": pa.array([present, None, absent], kind)})

        found = await lookup(open_backend, rows, {"k": [3, 2, 1]})

        assert found == [(0, {"v": absent}), (1, {"v": None}), (2, {"v": present})]

    @settings(max_examples=30, suppress_health_check=SHARED)
    @given(stored=st.lists(texts, unique=True, max_size=20), asked=st.lists(texts, unique=True))
    async def test_any_text_finds_its_own_row(
        self, open_backend: OpenBackend, stored: list[str], asked: list[str]
    ) -> None:
        """Whatever characters the keys have, the answer is that of a dictionary."""
        rows = pa.table(
            {"k": pa.array(stored, pa.utf8()), "n": pa.array(range(len(stored)), pa.int64())}
        )
        keys = list(dict.fromkeys(asked + stored[::2]))

        found = await lookup(open_backend, rows, {"k": keys})

        expected = {key: number for number, key in enumerate(stored)}
        positions = [position for position, key in enumerate(keys) if key in expected]
        assert found == [(position, {"n": expected[keys[position]]}) for position in positions]

    async def test_many_keys_are_one_fetch(self, open_backend: OpenBackend) -> None:
        """Thousands of keys in one batch are answered together."""
        rows = pa.table({"k": pa.array(range(0, 10_000, 2)), "v": pa.array(range(5_000))})

        fetched = await fetch(open_backend, rows, {"k": list(range(10_000))})

        pairs = sorted(zip(fetched.ordinals.tolist(), fetched.rows["v"].to_pylist(), strict=True))
        assert pairs == [(2 * value, value) for value in range(5_000)]

    async def test_fetches_run_side_by_side(self, open_backend: OpenBackend) -> None:
        """The same backend answers several batches at a time, each with its own rows."""
        async with open_backend(AIRPORTS, ["code"]) as backend, asyncio.TaskGroup() as group:
            schema = await backend.describe(timeout_s=TIMEOUT_S)
            batches = [pa.record_batch([[code]], schema=schema.key) for code in ("JFK", "EWR") * 8]
            tasks = [
                group.create_task(backend.fetch(batch, timeout_s=TIMEOUT_S)) for batch in batches
            ]

        names = [task.result().rows["name"].to_pylist() for task in tasks]
        assert names == [["Kennedy"], ["Newark"]] * 8


async def fetch(
    open_backend: OpenBackend, rows: pa.Table, keys: dict[str, list[Any]]
) -> FetchedRows:
    """Ask a fresh store with these rows for the keys, of the types that it describes."""
    async with open_backend(rows, list(keys)) as backend:
        schema = await backend.describe(timeout_s=TIMEOUT_S)
        columns = [pa.array(keys[field.name], field.type) for field in schema.key]
        batch = pa.record_batch(columns, schema=schema.key)
        return await backend.fetch(batch, timeout_s=TIMEOUT_S)


async def lookup(
    open_backend: OpenBackend, rows: pa.Table, keys: dict[str, list[Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """What `fetch` found, as (ordinal, row) in the order of the keys."""
    fetched = await fetch(open_backend, rows, keys)
    assert fetched.rows.num_rows == len(fetched.ordinals)
    pairs = zip(fetched.ordinals.tolist(), fetched.rows.to_pylist(), strict=True)
    return sorted(pairs, key=lambda pair: pair[0])
