"""Bodies, paths and rows in JSON and Arrow: exact values, exact texts, named faults."""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.cache.row_store import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import UUID_FIELD
from service.http.body import json_body
from service.http.replies.arrow import MAX_BATCHES, arrow_keys
from service.http.replies.json_reply import CHUNK_ROWS, json_reply, json_rows
from service.http.replies.lookup_result import LookupResult, lookup_result
from service.http.routes.cached_rows import RowForm
from service.http.routes.lookup_request import (
    InvalidateRequestBody,
    LookupRequestBody,
    from_json,
    from_query,
)
from service.http.routes.single_row import path_key
from tests.service.http.serving import arrow_stream

KEY = pa.schema({"id": pa.int64()})


def refused(call: Callable[[], object]) -> InvalidRequest:
    """The error of a call that is refused."""
    with pytest.raises(InvalidRequest) as caught:
        call()
    return caught.value


# JSON bodies


def test_json_values_stay_exact() -> None:
    """Integers of any size stay exact; texts may hold any character."""
    body = '{"keys": [9007199254740993, 1.5, "é\\u0000", true, null]}'.encode()

    assert json_body(body) == {"keys": [9007199254740993, 1.5, "é\0", True, None]}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"", "the body is not JSON: Expecting value at character 0"),
        (b'{"keys": [1,}', "the body is not JSON: Expecting value at character 12"),
        (b"[1] x", "the body is not JSON: Extra data at character 4"),
        (b'["\xff"]', "not UTF-8 at byte 2"),
        (b"[1, NaN]", "NaN is not JSON, at character 4"),
        (b'["NaN", -Infinity]', "-Infinity is not JSON, at character 8"),
        (b"[1e999]", "a number is out of range"),
        (b"[" + b"9" * 5000 + b"]", "a number is out of range"),
        (b'{"keys": [], "keys": [1]}', "an object has the same name twice"),
        (b'["]",' + b"[" * 100_000, "nested too deeply at character 104"),
        (b'["]",' + b'{"a":' * 100_000, "nested too deeply at character 500"),
    ],
)
def test_bad_json_is_refused_with_its_place(body: bytes, detail: str) -> None:
    """A body that is not JSON by RFC 8259 is refused with the fault and its position."""
    error = refused(lambda: json_body(body))

    assert (error.code, error.detail) == (ErrorCode.BAD_JSON, detail)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ({}, "keys: Field required"),
        ([], "body: Input should be a valid dictionary or instance of LookupRequestBody"),
        ({"keys": 1}, "keys: Input should be a valid list"),
        ({"keys": [], "columns": [1]}, "columns.0: Input should be a valid string"),
        ({"keys": [], "timeout_ms": 0}, "timeout_ms: Input should be greater than 0"),
        ({"keys": [], "timeout_ms": True}, "timeout_ms: Input should be a valid integer"),
        (
            {"keys": [], "timeout_ms": 3_600_001},
            "timeout_ms: Input should be less than or equal to 3600000",
        ),
        ({"keys": [], "kyes": []}, "kyes: Extra inputs are not permitted"),
        ({"keys": [], "a" * 200: 1}, f"{'a' * 100}: Extra inputs are not permitted"),
        (
            {"keys": [], "columns": [1] * 1000},
            "; ".join(
                [f"columns.{at}: Input should be a valid string" for at in range(5)]
                + ["and 995 more"]
            ),
        ),
    ],
)
def test_faults_of_a_request_name_their_path(value: object, detail: str) -> None:
    """A field that is unknown, missing or of another type is named; at most five are."""
    error = refused(lambda: from_json(LookupRequestBody, value))

    assert (error.code, error.detail) == (ErrorCode.BAD_REQUEST, detail)


@pytest.mark.parametrize("value", [{}, {"all": False}, {"keys": [1], "all": True}])
def test_invalidation_names_keys_or_all(value: object) -> None:
    """An invalidation has keys, possibly none, or `all: true`."""
    error = refused(lambda: from_json(InvalidateRequestBody, value))

    assert error.detail == "body: either keys or all: true is required"
    assert from_json(InvalidateRequestBody, {"keys": []}).keys == []
    assert from_json(InvalidateRequestBody, {"all": True}).keys is None


def test_query_string_is_read() -> None:
    """Columns and timeout may be in it; an unknown name or a wrong number is named."""
    wanted = from_query({"columns": "a,b", "timeout_ms": "250"})

    assert wanted == LookupRequestBody(keys=[], columns=["a", "b"], timeout_ms=250)
    assert from_query({"columns": ""}) == LookupRequestBody(keys=[], columns=[])
    assert from_query({}) == LookupRequestBody(keys=[])
    wrong = [("column", "a"), *(("timeout_ms", each) for each in ("2s", "", "9" * 5_000))]
    for name, text in wrong:
        assert refused(partial(from_query, {name: text})).detail.startswith(f"{name}: ")


# Keys in paths


def schema_of(kind: pa.DataType) -> DimensionSchema:
    """A dimension whose key has this type."""
    return DimensionSchema(pa.schema({"key": kind}), pa.schema({"name": pa.utf8()}))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "-42", -42),
        (pa.utf8(), "42", "42"),
        (pa.utf8(), "", ""),
        (pa.utf8(), "a,b%20%C3%A9", "a,b \u00e9"),
        (pa.bool_(), "true", True),
        (pa.decimal128(5, 2), "1.50", Decimal("1.50")),
        (pa.date32(), "2013-01-02", date(2013, 1, 2)),
        (pa.binary(), "%2FwA=", b"\xff\x00"),
        *((pa.int64(), text, ErrorCode.TYPE) for text in ("1.0", "", "%00", "9" * 5000)),
        *((pa.int8(), "128", ErrorCode.TYPE), (pa.bool_(), "yes", ErrorCode.TYPE)),
        (pa.utf8(), "%ff", ErrorCode.INVALID_TEXT),
    ],
)
def test_path_is_read_in_the_key_type(kind: pa.DataType, text: str, value: object) -> None:
    """The key type defines the meaning of a path; a single-column key may contain commas."""
    path = f"/v1/dimensions/x/rows/{text}"
    if isinstance(value, ErrorCode):
        assert refused(lambda: path_key(path, schema_of(kind))).code is value
        return
    keys = path_key(path, schema_of(kind))

    assert keys.columns.to_pylist() == [{"key": value}]
    assert (keys.nulls.tolist(), keys.faults) == ([], {})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int64(), "-42", -42),
        (pa.int64(), "x", None),
        (pa.utf8(), "a%2Cb,c", "a,b,c"),
        (pa.utf8(), "%ff", None),
        (pa.bool_(), "true", None),
    ],
)
def test_path_may_have_a_single_key(kind: pa.DataType, text: str, value: object) -> None:
    """A valid key of one integer or text is read; other keys need a lookup."""
    pairs = DimensionSchema(pa.schema({"a": kind, "b": kind}), pa.schema([]))

    assert RowForm.of(schema_of(kind)).path_value(f"/rows/{text}") == value
    assert RowForm.of(pairs).path_value(f"/rows/{text}") is None


# Rows as JSON


def written(rows: pa.RecordBatch, has_row: list[bool] | None = None) -> list[Any]:
    """Rows as parsed JSON."""
    mask = np.array(has_row if has_row is not None else [True] * rows.num_rows)
    parsed: list[Any] = orjson.loads(b"[" + b"".join(json_rows(rows, mask)) + b"]")
    return parsed


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array([2**63 - 1, None], pa.int64()), [2**63 - 1, None]),
        (pa.array([float("nan"), float("inf"), 0.1]), [None, None, 0.1]),
        (pa.array([Decimal("1.10"), Decimal("-0.01")], pa.decimal128(5, 2)), ["1.10", "-0.01"]),
        (pa.array([b"\xff\x00", b""]), ["/wA=", ""]),
        (pa.array([date(2013, 1, 2), None]), ["2013-01-02", None]),
        (pa.array([time(1, 2, 3, 4)], pa.time64("us")), ["01:02:03.000004"]),
        (pa.array([1_500_000], pa.timestamp("us")), ["1970-01-01T00:00:01.500000"]),
        (pa.array([2_000_000], pa.timestamp("us", "Europe/Berlin")), ["1970-01-01T00:00:02Z"]),
        (pa.array([1], pa.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z"]),
        (pa.array([253_402_300_800], pa.timestamp("s")), ["10000-01-01T00:00:00"]),
        (pa.array(["é\0\U0001f600", '"\\']), ["é\0\U0001f600", '"\\']),
        (pa.array([[1.5], None]), [[1.5], None]),
        (pa.array([[date(2013, 1, 2), None], []]), [["2013-01-02", None], []]),
        (pa.array([None, [0]], pa.list_(pa.timestamp("s"))), [None, ["1970-01-01T00:00:00"]]),
        (pa.array([[9], [1, 2]], pa.list_(pa.decimal128(3, 1)))[1:], [["1.0", "2.0"]]),
        (pa.array([True, False]), [True, False]),
        (
            pa.array([bytes(range(16)), None], pa.binary(16)),
            ["00010203-0405-0607-0809-0a0b0c0d0e0f", None],
        ),
        (pa.array([1_000_000], pa.duration("us")), ["0:00:01"]),
    ],
)  # fmt: skip
def test_values_have_exact_texts(column: pa.Array, texts: list[Any]) -> None:
    """Each value has one exact text, in a single row and in a batch."""
    metadata = UUID_FIELD if column.type == pa.binary(16) else None
    fields = [pa.field("value", column.type, metadata=metadata), ("number", pa.int64())]
    rows = pa.record_batch([column, pa.array(range(len(column)))], pa.schema(fields))
    form = RowForm.of(DimensionSchema(KEY, rows.schema))

    alone = [orjson.loads(form.text(StoredRow(rows.columns, at))) for at in range(len(column))]

    assert written(rows) == alone
    assert [each["value"] for each in alone] == texts


def test_missing_rows_are_null() -> None:
    """A missing row is null, a row of nulls or without columns is an object."""
    nulls = pa.record_batch({"value": pa.nulls(2, pa.int32())})

    assert written(nulls, [True, False]) == [{"value": None}, None]
    assert written(pa.record_batch([], schema=pa.schema([])), [True, False]) == [{}, None]


def test_many_rows_come_in_chunks() -> None:
    """Rows are written in chunks of 1,000 that form one list."""
    size = 2 * CHUNK_ROWS + 1
    rows = pa.record_batch({"value": pa.array(range(size))})

    chunks = list(json_rows(rows, np.ones(size, np.bool_)))

    assert [chunk.count(b"{") for chunk in chunks] == [CHUNK_ROWS, CHUNK_ROWS, 1]
    assert [row["value"] for row in orjson.loads(b"[" + b"".join(chunks) + b"]")] == [*range(size)]


def test_row_text_omits_stored_keys() -> None:
    """A row has the columns of its schema, which are stored behind the key."""
    stored = StoredRow([pa.array([b"key"]), pa.array(["Ada"])], 0)
    named = DimensionSchema(KEY, pa.schema([("name", pa.utf8())]))

    assert RowForm.of(named).text(stored) == b'{"name":"Ada"}'
    assert RowForm.of(DimensionSchema(KEY, pa.schema([]))).text(stored) == b"{}"


# Results

COLUMNS = pa.schema([pa.field("name", pa.utf8(), nullable=False), ("tier", pa.int32())])


def hits(positions: list[int]) -> Answer:
    """Rows with names and ages by position."""
    names = [str(at) for at in positions]
    rows = pa.record_batch([pa.array(names), pa.array(positions, pa.int32())], schema=COLUMNS)
    ages = np.array([100 + at for at in positions], np.uint32)
    outcomes = np.full(len(positions), Outcome.HIT, np.uint8)
    return Answer(np.array(positions, np.int32), outcomes, ages, rows)


def missing(positions: list[int]) -> Answer:
    """Missing keys."""
    return rowless_answer(np.array(positions, np.int32), Outcome.MISSING)


@given(data=st.data(), size=st.integers(0, 30))
def test_result_is_in_request_order(data: st.DataObject, size: int) -> None:
    """Each position gets its own result, however the keys are divided among answers."""
    order = data.draw(st.permutations(range(size)))
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    parts = [order[start:end] for start, end in pairwise([0, *cuts, size])]
    answers = [hits(part) if data.draw(st.booleans()) else missing(part) for part in parts]

    result = lookup_result(answers, size, COLUMNS)

    has_row = {
        at: answer.rows is not None for answer in answers for at in answer.positions.tolist()
    }
    assert result.rows.schema.names == ["name", "tier"]
    assert result.rows.column("name").to_pylist() == [
        str(at) if has_row[at] else None for at in range(size)
    ]
    assert result.has_row.tolist() == [has_row[at] for at in range(size)]
    assert result.ages_ms.tolist() == [100 + at if has_row[at] else 0 for at in range(size)]


def result_of(*outcomes: Outcome, errors: dict[int, ErrorCode] | None = None) -> LookupResult:
    """A result with a row for each key."""
    rows = pa.record_batch({"value": pa.array(range(len(outcomes)))})
    ages_ms = np.arange(len(outcomes), dtype=np.uint32)
    return LookupResult(np.array(outcomes, np.uint8), ages_ms, rows, errors or {})


async def test_long_answers_let_others_run() -> None:
    """Other tasks run between the chunks of a long answer."""
    reply = asyncio.ensure_future(
        json_reply(result_of(*[Outcome.HIT] * (3 * CHUNK_ROWS)), str.upper)
    )
    await asyncio.sleep(0)

    assert not reply.done()
    assert (await reply).count(b'"hit"') == 3 * CHUNK_ROWS


# Arrow

KEYS = pa.record_batch({"id": pa.array([1, None, 3], pa.int64())})


def test_batches_of_a_stream_are_the_keys() -> None:
    """All batches are the keys in their order; there may be none."""
    assert arrow_keys(arrow_stream(KEYS, KEYS)).to_pydict() == {"id": [1, None, 3, 1, None, 3]}
    assert arrow_keys(arrow_stream(*[KEYS.slice(0, 0)] * MAX_BATCHES)).num_rows == 0
    assert arrow_keys(arrow_stream(schema=KEYS.schema)).num_rows == 0


TEXTS = arrow_stream(pa.record_batch({"id": ["a", "b"]}))
WHOLE = arrow_stream(KEYS)


DICTIONARY = pa.record_batch({"id": pa.array(["a"]).dictionary_encode()})
WILD_OFFSETS = TEXTS.replace(struct.pack("<3i", 0, 1, 2), struct.pack("<3i", 0, 1000, 2))


@pytest.mark.parametrize(
    ("body", "part_of_detail"),
    [
        (b"", "no schema"),
        (b"{}", ""),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", ""),
        (b"\xff\xff\xff\xff\xff\xff\xff\x7f", ""),
        (WHOLE[: WHOLE.rindex(b"\x03") - 8], ""),
        (arrow_stream(KEYS, compression="lz4"), "compressed"),
        (arrow_stream(KEYS, compression="zstd"), "compressed"),
        (arrow_stream(DICTIONARY), "only flat types"),
        (arrow_stream(*[KEYS.slice(0, 0)] * (MAX_BATCHES + 1)), "1000"),
        (WILD_OFFSETS, ""),
    ],
)
def test_other_bytes_are_no_keys(body: bytes, part_of_detail: str) -> None:
    """A body that is not a complete, uncompressed and bounded Arrow stream is refused."""
    error = refused(lambda: arrow_keys(body))

    assert error.code is ErrorCode.BAD_ARROW
    assert part_of_detail in error.detail


@given(at=st.integers(0, 400), bit=st.integers(0, 7))
def test_changed_bits_never_crash(at: int, bit: int) -> None:
    """A stream with one wrong bit is read or refused."""
    body = bytearray(WHOLE)
    body[at % len(body)] ^= 1 << bit

    with suppress(InvalidRequest):
        arrow_keys(bytes(body)).validate(full=True)
