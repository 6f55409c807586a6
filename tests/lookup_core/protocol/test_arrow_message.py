"""The outside of Arrow messages: one envelope, one version, one byte order, and no compression."""

import struct

import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import RECORD_BATCH, SCHEMA, read_message
from tools.fuzz import forged_arrow
from tools.fuzz.forged_arrow import ForgedBatch, ForgedField, forged_schema

NUMBERS = pa.record_batch({"id": pa.array([7, 8], pa.int64())})
BATCH = NUMBERS.serialize().to_pybytes()
IPC_SCHEMA = NUMBERS.schema.serialize().to_pybytes()


def refusal(message: bytes, kind: str = RECORD_BATCH) -> str:
    """Why a message is a bad frame."""
    with pytest.raises(ProtocolViolation) as caught:
        read_message(message, kind, offset=20)
    assert (caught.value.code, caught.value.offset) == (ErrorCode.BAD_FRAME, 20)
    return caught.value.detail.removesuffix(" (at byte 20)")


@pytest.mark.parametrize("batch", [BATCH, ForgedBatch().message()], ids=["Arrow's", "forged"])
def test_batch_is_read(batch: bytes) -> None:
    """A message as Arrow writes it is read; so is a true one of the tests' own making."""
    message = read_message(batch, RECORD_BATCH)

    assert pa.ipc.read_record_batch(message, NUMBERS.schema) == NUMBERS


@pytest.mark.parametrize("schema", [IPC_SCHEMA, forged_schema(ForgedField())])
def test_schema_is_read(schema: bytes) -> None:
    """As above."""
    assert pa.ipc.read_schema(read_message(schema, SCHEMA)) == NUMBERS.schema


@pytest.mark.parametrize(
    "message",
    [
        b"",
        BATCH[:7],
        b"garbage, and more of it",
        BATCH[4:],  # the envelope of Arrow before 0.15
        b"\xff" * 4 + struct.pack("<i", 0),  # the end of a stream
        b"\xff" * 4 + struct.pack("<i", -8) + BATCH[8:],
        b"\xff" * 4 + struct.pack("<i", 4) + BATCH[8:],
        b"\xff" * 4 + struct.pack("<i", 2**31 - 8) + BATCH[8:],
    ],
    ids=["none", "short", "garbage", "old", "end", "negative", "misaligned", "longer"],
)
def test_envelope_is_checked_first(message: bytes) -> None:
    """The marker, then a size that is a multiple of 8 and lies inside: nothing else is a start."""
    assert refusal(message) == "an Arrow message was expected"


@pytest.mark.parametrize(
    ("message", "kind", "reason"),
    [
        (IPC_SCHEMA, RECORD_BATCH, "expected a record batch, got: schema"),
        (BATCH, SCHEMA, "expected a schema, got: record batch"),
        (ForgedBatch(header=77).message(), RECORD_BATCH, "expected a record batch, got: unknown"),
        (BATCH + b"\0", RECORD_BATCH, "something follows the record batch"),
        (BATCH + BATCH, RECORD_BATCH, "something follows the record batch"),
        (ForgedBatch(body_bytes=8).message(), RECORD_BATCH, "something follows the record batch"),
    ],
)
def test_one_message_of_one_kind(message: bytes, kind: str, reason: str) -> None:
    """Another kind of message, or more than one, is refused."""
    assert refusal(message, kind) == reason


@pytest.mark.parametrize("kind", [forged_arrow.SCHEMA, forged_arrow.RECORD_BATCH])
def test_message_has_a_header(kind: int) -> None:
    """A message that says what it holds, but holds nothing, is refused before that is read."""
    message = forged_arrow.headless(kind)

    names = {forged_arrow.SCHEMA: SCHEMA, forged_arrow.RECORD_BATCH: RECORD_BATCH}
    assert refusal(message, names[kind]) == f"expected a {names[kind]}, got: nothing"


@pytest.mark.parametrize("codec", [forged_arrow.LZ4, forged_arrow.ZSTD, 9])
def test_compression_is_refused_unread(codec: int) -> None:
    """Whatever the codec is called: compressed buffers may be bombs."""
    assert refusal(ForgedBatch(codec=codec).message()) == "compressed buffers are refused"


@pytest.mark.parametrize("metadata", [{}, {"ARROW:experimental_compression": "zstd"}])
def test_older_version_is_refused(metadata: dict[str, str]) -> None:
    """Version 4 had compression elsewhere, where Arrow would still find it and inflate the body."""
    message = ForgedBatch(version=forged_arrow.V4, metadata=metadata).message()

    assert refusal(message) == "only version 5 of Arrow's metadata is taken"


@pytest.mark.parametrize("endianness", [forged_arrow.BIG, 7])
def test_columns_are_little_endian(endianness: int) -> None:
    """Arrow would read a schema of the other byte order, and its batches as if they were not."""
    message = forged_schema(ForgedField(), endianness=endianness)

    assert refusal(message, SCHEMA) == "columns are little-endian"


@pytest.mark.parametrize(
    "body_bytes", [2**40, 2**62, -1], ids=["a terabyte", "more than there is", "negative"]
)
def test_declared_size_is_not_allocated(body_bytes: int) -> None:
    """A body of another size than it says is not even begun."""
    allocated = pa.total_allocated_bytes()

    with pytest.raises(OSError, match="body"):
        read_message(ForgedBatch(body_bytes=body_bytes).message(), RECORD_BATCH)

    assert pa.total_allocated_bytes() == allocated
