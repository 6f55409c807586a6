"""Arrow schemas and batches as they stand in frames, and what of a peer's bytes is refused."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import (
    MAX_FIELDS,
    META,
    ROWLESS,
    answer_batch,
    answer_from_batch,
    decode_batch,
    decode_schema,
    encode_batch,
    encode_schema,
    result_schema,
)

FLAT = pa.record_batch(
    {
        "number": pa.array([1, None, 3], pa.int64()),
        "text": pa.array(["a", None, "é\0"], pa.utf8()),
        "truth": pa.array([True, None, False]),
        "amount": pa.array([Decimal("1.25"), None, Decimal("-7.00")], pa.decimal128(10, 2)),
        "uuid": pa.array([b"x" * 16, None, b"y" * 16], pa.binary(16)),
        "moment": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
    }
)
MESSAGES = [bytes(encode_batch(FLAT)), encode_schema(FLAT.schema)]
NUMBERS = pa.record_batch({"number": pa.array([1, 2, 3], pa.int64())})


def messages(batch: pa.RecordBatch, compression: str | None = None) -> list[bytes]:
    """The messages of an IPC stream: the schema, dictionaries, the batch."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    found = pa.ipc.MessageReader.open_stream(sink.getvalue())
    return [message.serialize().to_pybytes() for message in found]


def refusal(decode: Callable[..., object], *given: object, **named: object) -> str:
    """Why a peer's bytes are a bad frame."""
    with pytest.raises(ProtocolViolation) as caught:
        decode(*given, **named)
    assert caught.value.code is ErrorCode.BAD_FRAME
    return caught.value.detail


def plain(answer: Answer) -> tuple[object, ...]:
    """All that an answer says, as plain values."""
    columns = (answer.positions, answer.outcomes, answer.ages_ms)
    return *(column.tolist() for column in columns), answer.rows, answer.errors


def test_schema_survives_the_wire() -> None:
    """Names, types and their order come out as they went in."""
    assert decode_schema(encode_schema(FLAT.schema)) == FLAT.schema


@pytest.mark.parametrize("batch", [FLAT, FLAT.slice(1, 1), FLAT.slice(3), FLAT.slice(2, 1)])
def test_batch_survives_the_wire(batch: pa.RecordBatch) -> None:
    """A batch comes out as it went in, also a slice of a longer one, also without rows."""
    assert decode_batch(encode_batch(batch), FLAT.schema) == batch


def test_slice_costs_its_own_bytes() -> None:
    """What stands outside a slice does not travel."""
    long = pa.record_batch({"number": pa.array(range(1_000), pa.int64())})

    assert len(encode_batch(long.slice(500, 3))) == len(encode_batch(NUMBERS))


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int8()),
        pa.struct({"a": pa.int8()}),
        pa.map_(pa.int8(), pa.int8()),
        pa.dictionary(pa.int8(), pa.utf8()),
        pa.run_end_encoded(pa.int16(), pa.int8()),
        pa.uuid(),
        pa.string_view(),
        pa.duration("s"),
        pa.null(),
    ],
)
def test_only_flat_types_travel(kind: pa.DataType) -> None:
    """Nested, encoded and extension types are refused, with the field's name."""
    message = encode_schema(pa.schema({"a": pa.int8(), "b": kind}))

    detail = refusal(decode_schema, message)

    assert detail == f"field 'b' has type {kind}; only flat types may travel"


LISTS = pa.record_batch(
    {
        "numbers": pa.array([[1, None], [], None, [3]], pa.list_(pa.int64())),
        "texts": pa.array([["a"], ["b", "é"], [], None], pa.list_(pa.utf8())),
        "moments": pa.array([[0], None, [1, 2], []], pa.list_(pa.timestamp("us", "UTC"))),
    }
)


@pytest.mark.parametrize("batch", [LISTS, LISTS.slice(1, 2), LISTS.slice(4)])
def test_lists_travel_where_they_may(batch: pa.RecordBatch) -> None:
    """Columns of several rows come out as they went in, also a slice, also without rows."""
    schema = decode_schema(encode_schema(LISTS.schema), may_have_lists=True)

    assert schema == LISTS.schema
    assert decode_batch(encode_batch(batch), schema) == batch


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.int8())),
        pa.list_(pa.struct({"a": pa.int8()})),
        pa.list_(pa.null()),
        pa.list_(pa.uuid()),
        pa.list_(pa.binary(0)),
        pa.list_(pa.field("item", pa.int8(), metadata={"ARROW:extension:name": "x"})),
        pa.list_(pa.int8(), 2),
        pa.large_list(pa.int8()),
        pa.list_view(pa.int8()),
        pa.struct({"a": pa.int8()}),
    ],
)
def test_lists_hold_flat_values_only(kind: pa.DataType) -> None:
    """Where lists may travel, deeper nesting and other kinds of lists may not."""
    message = encode_schema(pa.schema({"b": kind}))

    detail = refusal(decode_schema, message, may_have_lists=True)

    assert detail.startswith("field 'b' has type ")
    assert detail.endswith("; only flat types, and lists of them, may travel")


def test_texts_inside_lists_are_read() -> None:
    """A time zone that is no text is found in the values of a list, too."""
    kind = pa.list_(pa.timestamp("us", "Moon/Far"))
    message = encode_schema(pa.schema({"at": kind})).replace(b"Moon/Far", b"Moon/\xffar")

    refused = refusal(decode_schema, message, may_have_lists=True)

    assert refused == "the schema is not an Arrow schema message"


@pytest.mark.parametrize("offsets", [[0, 3, 2, 4], [0, 1, 2, 9], [-1, 1, 2, 4], [9, 1, 2, 4]])
def test_lists_with_lying_offsets_are_refused(offsets: list[int]) -> None:
    """Offsets that run backwards or beyond the values would show memory of others."""
    batch = pa.record_batch([pa.array([[5], [6], [7, 8]], pa.list_(pa.int64()))], ["numbers"])
    truth = np.array([0, 1, 2, 4], np.int32).tobytes()

    message = bytes(encode_batch(batch))
    lie = message.replace(truth, np.array(offsets, np.int32).tobytes())

    assert message.count(truth) == 1
    refusal(decode_batch, lie, batch.schema)


def test_metadata_of_fields_stays_home() -> None:
    """What our own schemas carry for other purposes is left out; the schema's own goes along."""
    field = pa.field("a", pa.utf8(), metadata={"ARROW:extension:name": "arrow.json"})

    decoded = decode_schema(encode_schema(pa.schema([field], {"sidelook.names": "exact"})))

    assert decoded.metadata == {b"sidelook.names": b"exact"}
    assert decoded.equals(pa.schema({"a": pa.utf8()}))
    assert decoded.field("a").metadata is None


@pytest.mark.parametrize("scale", [-1, 6, 100, 2_000_000_000, -2_000_000_000])
@pytest.mark.parametrize("decimal", [pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256])
def test_scale_lies_within_the_precision(
    decimal: Callable[[int, int], pa.DataType], scale: int
) -> None:
    """Arrow computes nonsense, or ends the process, when it casts decimals of other scales."""
    message = encode_schema(pa.schema({"a": decimal(5, scale)}))

    assert "only flat types may travel" in refusal(decode_schema, message)


def test_schema_has_not_many_fields() -> None:
    """A schema of more fields than a table can have is refused."""
    most = pa.schema([(f"f{number}", pa.int8()) for number in range(MAX_FIELDS)])
    message = encode_schema(most.append(pa.field("more", pa.int8())))

    assert decode_schema(encode_schema(most)) == most
    assert refusal(decode_schema, message) == "a schema may have 1000 fields, this one has 1001"


@pytest.mark.parametrize("text", [b"number", b"Moon/Far"])
def test_names_and_zones_are_utf8(text: bytes) -> None:
    """Bytes that are no text are refused here, not where somebody reads them later."""
    schema = pa.schema({"number": pa.timestamp("us", "Moon/Far")})
    message = encode_schema(schema).replace(text, b"\xff" * len(text))

    assert refusal(decode_schema, message) == "the schema is not an Arrow schema message"


@pytest.mark.parametrize("message", [b"", b"garbage", messages(FLAT)[1]])
def test_other_bytes_are_no_schema(message: bytes) -> None:
    """What is not a schema message is refused, with the byte where it stands in the frame."""
    with pytest.raises(ProtocolViolation) as caught:
        decode_schema(message, offset=20)

    assert (caught.value.code, caught.value.offset) == (ErrorCode.BAD_FRAME, 20)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_batch_is_refused(compression: str) -> None:
    """Compressed buffers are refused before they are read: they may be bombs."""
    zeros = pa.record_batch({"number": pa.array([0] * 1_000, pa.int64())})
    message = messages(zeros, compression)[1]

    assert refusal(decode_batch, message, zeros.schema) == "compressed buffers are refused"


@pytest.mark.parametrize(
    "message",
    [bytes(encode_batch(FLAT.select(["text"]))), bytes(encode_batch(NUMBERS))[:-8]],
    ids=["more buffers", "truncated"],
)
def test_other_bytes_are_no_batch(message: bytes) -> None:
    """What is not a batch of the schema is refused."""
    schema = pa.schema({"number": pa.int64(), "other": pa.utf8()})

    detail = refusal(decode_batch, message, schema)

    assert detail == "the payload is not a record batch of the channel's schema"


def test_nothing_follows_the_message() -> None:
    """Bytes behind a message are garbage, whatever they are."""
    batch, schema = bytes(encode_batch(NUMBERS)), encode_schema(NUMBERS.schema)

    assert refusal(decode_schema, schema + b"x") == "something follows the schema"
    for more in (b"x", batch):
        detail = refusal(decode_batch, batch + more, NUMBERS.schema)
        assert detail == "something follows the record batch"


def test_text_is_checked_in_full() -> None:
    """Text that is not UTF-8 never reaches a reader."""
    texts = pa.record_batch({"text": pa.array(["abcdefgh"])})
    message = bytes(encode_batch(texts)).replace(b"abcdefgh", b"abc\xff\xfefgh")

    refusal(decode_batch, message, texts.schema)


@given(st.data())
def test_mutated_messages_fail_cleanly(data: st.DataObject) -> None:
    """Whatever bytes a peer changes, the message is refused or is a valid one."""
    message = bytearray(data.draw(st.sampled_from(MESSAGES)))
    places = st.integers(0, len(message) - 1)
    for at, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        message[at] = value
    del message[data.draw(st.integers(1, len(message))) :]

    for decode in (decode_schema, lambda given: decode_batch(given, FLAT.schema)):
        with suppress(ProtocolViolation):
            assert decode(bytes(message)) is not None


@pytest.mark.parametrize("columns", [["number", "text"], ["text"], []])
def test_answer_with_rows_survives(columns: list[str]) -> None:
    """Positions, outcomes, ages and rows come out as they went in, also rows without columns."""
    rows = FLAT.select(columns)
    outcomes = np.array([Outcome.HIT, Outcome.FETCHED, Outcome.STALE], np.uint8)
    answer = Answer(np.array([7, 0, 2], np.int32), outcomes, np.array([5, 0, 9], np.uint32), rows)

    payload = encode_batch(answer_batch(answer))
    decoded = answer_from_batch(decode_batch(payload, result_schema(rows.schema)), has_rows=True)

    assert plain(decoded) == plain(answer)
    assert decoded.rows is not None
    assert decoded.rows.num_rows == 3


def test_column_may_be_called_position() -> None:
    """A dimension's columns may have the names of the answer's own, or all the same name."""
    rows = pa.record_batch(
        [pa.array([8]), pa.array(["a"]), pa.array([9])], names=["position", "error", "position"]
    )
    answer = Answer(np.array([3], np.int32), np.zeros(1, np.uint8), np.zeros(1, np.uint32), rows)

    decoded = answer_from_batch(answer_batch(answer), has_rows=True)

    assert plain(decoded) == plain(answer)


@pytest.mark.parametrize(
    "errors", [{}, {5: ErrorCode.TYPE}, {5: ErrorCode.TYPE, 1: ErrorCode.TIMEOUT}]
)
def test_answer_without_rows_survives(errors: dict[int, ErrorCode]) -> None:
    """Without rows the error codes travel instead, for the positions that have one."""
    outcomes = np.array([Outcome.ERROR, Outcome.TIMEOUT], np.uint8)
    answer = Answer(np.array([5, 1], np.int32), outcomes, np.array([0, 4], np.uint32), None, errors)

    payload = encode_batch(answer_batch(answer))
    decoded = answer_from_batch(decode_batch(payload, ROWLESS), has_rows=False)

    assert plain(decoded) == plain(answer)


@pytest.mark.parametrize("has_rows", [True, False])
def test_empty_answer_survives(has_rows: bool) -> None:  # noqa: FBT001 -- a parameter
    """An answer to no keys travels, too."""
    answer = rowless_answer(np.array([], np.int32), Outcome.HIT)
    answer = replace(answer, rows=NUMBERS.slice(3) if has_rows else None)

    assert plain(answer_from_batch(answer_batch(answer), has_rows=has_rows)) == plain(answer)


@pytest.mark.parametrize("column", META.names)
def test_null_in_meta_is_refused(column: str) -> None:
    """A peer that leaves a position, an outcome or an age out breaks the protocol."""
    batch = answer_batch(rowless_answer(np.array([0, 1], np.int32), Outcome.MISSING))
    at = META.get_field_index(column)
    batch = batch.set_column(at, META.field(at), pa.array([0, None], META.field(at).type))

    detail = refusal(answer_from_batch, batch, has_rows=False)

    assert detail == "position, outcome and age are never null"


def test_unknown_error_code_is_refused() -> None:
    """A code that this side does not know is a violation, not a crash."""
    batch = answer_batch(rowless_answer(np.array([0], np.int32), Outcome.ERROR))
    batch = batch.set_column(3, ROWLESS.field(3), pa.array(["of tomorrow"]))

    detail = refusal(answer_from_batch, batch, has_rows=False)

    assert detail == "an error code is unknown"
