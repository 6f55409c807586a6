"""Arrow bodies are read only if they are whole, plain and small; answers are one batch."""

import struct
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode, InvalidRequest
from service.http.replies.arrow import MAX_BATCHES, arrow_keys, arrow_reply
from service.http.replies.lookup_result import LookupResult

KEYS = pa.record_batch({"id": pa.array([1, None, 3], pa.int64())})


def test_batches_become_one() -> None:
    """All batches of a stream are the keys, in their order."""
    assert arrow_keys(_stream(KEYS, KEYS)).to_pydict() == {"id": [1, None, 3, 1, None, 3]}


def test_stream_without_batches_has_no_keys() -> None:
    """A schema alone asks for nothing."""
    assert arrow_keys(_stream(KEYS.slice(0, 0))).num_rows == 0
    assert arrow_keys(_stream(schema=KEYS.schema)).num_rows == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\xff\xff\xff\xff\x00\x00\x00\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    ],
)
def test_other_bytes_are_refused(body: bytes) -> None:
    """What is not an Arrow stream is a bad request."""
    assert _refusal(body).code is ErrorCode.BAD_ARROW


def test_cut_stream_is_refused() -> None:
    """A stream that ends in the middle of a batch asks nothing."""
    whole = _stream(KEYS)

    assert _refusal(whole[: whole.rindex(b"\x03") - 8]).code is ErrorCode.BAD_ARROW


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_batches_are_refused(codec: str) -> None:
    """A few bytes that would become gigabytes are not unpacked."""
    body = _stream(KEYS, compression=codec)

    assert _refusal(body).detail == "compressed buffers are refused"


def test_dictionaries_are_refused() -> None:
    """Only flat types may come, so that every buffer can be checked."""
    batch = pa.record_batch({"id": pa.array(["a"]).dictionary_encode()})

    assert "only flat types" in _refusal(_stream(batch)).detail


def test_too_many_batches_are_refused() -> None:
    """Each batch costs time however small it is."""
    body = _stream(*[KEYS.slice(0, 0)] * (MAX_BATCHES + 1))

    assert str(MAX_BATCHES) in _refusal(body).detail


def test_wrong_offsets_are_refused() -> None:
    """A text that points outside its buffer is found before anybody reads it."""
    body = _stream(pa.record_batch({"id": ["a", "b"]}))
    wild = body.replace(struct.pack("<3i", 0, 1, 2), struct.pack("<3i", 0, 1000, 2))

    assert wild != body
    assert _refusal(wild).code is ErrorCode.BAD_ARROW


@given(at=st.integers(0, 400), bit=st.integers(0, 7))
def test_changed_bits_never_crash(at: int, bit: int) -> None:
    """A stream with one wrong bit is read or refused, and nothing else happens."""
    body = bytearray(_stream(KEYS))
    body[at % len(body)] ^= 1 << bit

    with suppress(InvalidRequest):
        arrow_keys(bytes(body)).validate(full=True)


def test_answer_is_one_batch() -> None:
    """Outcome, age and error come first, then the row's columns, in request order."""
    result = LookupResult(
        outcomes=np.array([Outcome.HIT, Outcome.ERROR], np.uint8),
        ages_ms=np.array([5, 0], np.uint32),
        rows=pa.record_batch({"name": pa.array(["Ada", None])}),
        errors={1: ErrorCode.TYPE},
    )

    (batch,) = pa.ipc.open_stream(arrow_reply(result))

    assert batch.to_pydict() == {
        "outcome": ["hit", "error"],
        "age_ms": [5, 0],
        "error": [None, "type"],
        "name": ["Ada", None],
    }


def test_columns_may_be_named_like_ours() -> None:
    """A dimension's column `outcome` stands beside ours."""
    rows = pa.record_batch({"outcome": pa.array([7])})
    result = LookupResult(np.zeros(1, np.uint8), np.zeros(1, np.uint32), rows, {})

    (batch,) = pa.ipc.open_stream(arrow_reply(result))

    assert batch.schema.names == ["outcome", "age_ms", "error", "outcome"]
    assert batch.column(3).to_pylist() == [7]


def _stream(
    *batches: pa.RecordBatch, schema: pa.Schema | None = None, compression: str | None = None
) -> bytes:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _refusal(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        arrow_keys(body)
    return caught.value
