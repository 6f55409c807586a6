"""The contract of the backend port: one suite that runs over each implementation.

A test module subclasses the suite and provides a backend that holds given rows.
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

from lookup_core.dimension.dimension_events import FetchedRows
from service.connectors.ports.backend import Backend

# (rows, key columns) -> the backend that holds these rows; not yet described
OpenBackend = Callable[[pa.Table, Sequence[str]], AbstractAsyncContextManager[Backend]]

TIMEOUT_S = 10.0

AIRPORTS = pa.table(
    {
        "code": pa.array(["JFK", "LGA", "EWR"]),
        "name": pa.array(["Kennedy", None, "Newark"]),
        "altitude": pa.array([13, 22, None], pa.int32()),
    }
)
COLUMNS = pa.schema({"name": pa.utf8(), "altitude": pa.int32()})
MIDNIGHT = dt.datetime(2013, 1, 1)  # noqa: DTZ001  a type without a zone
# {name: (type, a key that has a row, another that has none)}
KEYS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "int2": (pa.int16(), -(2**15), 0),
    "int4": (pa.int32(), 2**31 - 1, -1),
    "int8": (pa.int64(), -(2**63), 2**63 - 1),
    "bool": (pa.bool_(), False, True),
    "text": (pa.utf8(), "a", "a "),
    "bytes": (pa.binary(), b"\x00\xff", b"\x00"),
    "date": (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "timestamp": (pa.timestamp("us"), MIDNIGHT + dt.timedelta(microseconds=1), MIDNIGHT),
    "instant": (
        pa.timestamp("us", "UTC"),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    ),
    "decimal": (pa.decimal128(38, 2), Decimal("1.5"), Decimal("-99999999.99")),
}
# The fixture holds nothing between examples, and each subclass has its own backend.
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)


class BackendContract:
    """Subclasses override the fixture `open_backend`."""

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """Opens the backend under test."""
        raise NotImplementedError

    async def test_description_has_exact_types(self, open_backend: OpenBackend) -> None:
        """Key and columns have the types of the rows, in their order."""
        async with open_backend(AIRPORTS, ["code"]) as backend:
            schema = await backend.describe(timeout_s=TIMEOUT_S)
            await backend.probe(timeout_s=TIMEOUT_S)

        assert (schema.key, schema.columns) == (pa.schema({"code": pa.utf8()}), COLUMNS)

    @pytest.mark.parametrize(
        ("codes", "expected"),
        [
            (
                ["EWR", "???", "JFK", "LGA"],
                [(0, "Newark", None), (2, "Kennedy", 13), (3, None, 22)],
            ),
            (["", "jfk", "JFK "], []),
            ([], []),
        ],
        ids=["some", "unknown", "none"],
    )
    async def test_rows_have_their_ordinals(
        self, open_backend: OpenBackend, codes: list[str], expected: list[tuple[Any, ...]]
    ) -> None:
        """A row has the position of its key in the batch; a key without a row is left out."""
        fetched = await fetch(open_backend, AIRPORTS, {"code": codes})
        none = await fetch(open_backend, AIRPORTS.slice(0, 0), {"code": codes})

        assert fetched.rows.schema == none.rows.schema == COLUMNS
        assert none.ordinals.tolist() == []
        columns = fetched.rows.to_pydict().values()
        assert sorted(zip(fetched.ordinals.tolist(), *columns, strict=True)) == expected

    async def test_rows_state_an_earlier_read(self, open_backend: OpenBackend) -> None:
        """Rows have a time of reading unless they are read when they are requested."""
        async with open_backend(AIRPORTS, ["code"]) as backend:
            await backend.describe(timeout_s=TIMEOUT_S)
            fetched = await backend.fetch(pa.record_batch({"code": ["JFK"]}), timeout_s=TIMEOUT_S)

            assert (fetched.read_at is None) is backend.reads_on_request

    async def test_composite_keys_match_by_part(self, open_backend: OpenBackend) -> None:
        """A composite key is compared part by part."""
        rows = pa.table({"a": ["x", "x|y", "x"], "b": ["y|z", "z", "y"], "n": [1, 2, 3]})

        found = await lookup(open_backend, rows, {"a": ["x|y", "x", "x|y"], "b": ["z", "y|z", "y"]})

        assert found == [(0, {"n": 2}), (1, {"n": 1})]

    @pytest.mark.parametrize("name", KEYS)
    async def test_keys_of_each_type_match(self, open_backend: OpenBackend, name: str) -> None:
        """A key of each type finds its row, also at the ends of its range."""
        kind, present, absent = KEYS[name]
        rows = pa.table({"k": pa.array([present], kind), "v": ["here"]})

        found = await lookup(open_backend, rows, {"k": [absent, present]})

        assert found == [(1, {"v": "here"})]

    @pytest.mark.parametrize("name", KEYS)
    async def test_values_are_exact(self, open_backend: OpenBackend, name: str) -> None:
        """A value of each type is returned as it is stored, null as null."""
        kind, present, absent = KEYS[name]
        rows = pa.table({"k": [1, 2, 3], "v": pa.array([present, None, absent], kind)})

        found = await lookup(open_backend, rows, {"k": [3, 2, 1]})

        assert found == [(0, {"v": absent}), (1, {"v": None}), (2, {"v": present})]

    @settings(max_examples=10, suppress_health_check=SHARED)
    @given(stored=st.lists(texts, unique=True, max_size=20), wanted=st.lists(texts, unique=True))
    async def test_any_text_matches_itself(
        self, open_backend: OpenBackend, stored: list[str], wanted: list[str]
    ) -> None:
        """Any text finds exactly the row of the equal text."""
        rows = pa.table(
            {"k": pa.array(stored, pa.utf8()), "n": pa.array(range(len(stored)), pa.int64())}
        )
        keys = list(dict.fromkeys(wanted + stored[::2]))

        found = await lookup(open_backend, rows, {"k": keys})

        expected = {key: number for number, key in enumerate(stored)}
        assert found == [
            (position, {"n": expected[key]}) for position, key in enumerate(keys) if key in expected
        ]

    async def test_large_batch_is_one_fetch(self, open_backend: OpenBackend) -> None:
        """Thousands of keys are fetched in one batch."""
        rows = pa.table({"k": pa.array(range(0, 10_000, 2)), "v": pa.array(range(5_000))})

        fetched = await fetch(open_backend, rows, {"k": list(range(10_000))})

        pairs = sorted(zip(fetched.ordinals.tolist(), fetched.rows["v"].to_pylist(), strict=True))
        assert pairs == [(2 * value, value) for value in range(5_000)]

    async def test_fetches_run_concurrently(self, open_backend: OpenBackend) -> None:
        """Concurrent batches have their own rows."""
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
    """Fetch keys, in the described types, from a new backend with these rows."""
    async with open_backend(rows, list(keys)) as backend:
        schema = await backend.describe(timeout_s=TIMEOUT_S)
        columns = [pa.array(keys[field.name], field.type) for field in schema.key]
        batch = pa.record_batch(columns, schema=schema.key)
        return await backend.fetch(batch, timeout_s=TIMEOUT_S)


async def lookup(
    open_backend: OpenBackend, rows: pa.Table, keys: dict[str, list[Any]]
) -> list[tuple[int, dict[str, Any]]]:
    """The fetched (ordinal, row) pairs in the order of the keys."""
    fetched = await fetch(open_backend, rows, keys)
    pairs = zip(fetched.ordinals.tolist(), fetched.rows.to_pylist(), strict=True)
    return sorted(pairs, key=lambda pair: pair[0])
