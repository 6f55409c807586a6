"""One encapsulated Arrow IPC message of a peer: what stands around and above its columns.

Refuses what Arrow itself would read kindly: older envelopes and versions, another byte order,
compressed buffers, and what follows. Not what the columns hold: that is `arrow_payload`'s.
"""

import struct

import pyarrow as pa

from lookup_core.errors import ErrorCode, ProtocolViolation

SCHEMA = "schema"  # as Arrow names the kinds of messages
RECORD_BATCH = "record batch"

_ENVELOPE = struct.Struct("<4si")  # continuation marker, bytes of metadata
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNMENT = 8
# Fields of the flatbuffer tables, by number: Message.fbs and Schema.fbs of Arrow's format.
_HEADER = 2  # of Message: the Schema or RecordBatch
_ENDIANNESS = 0  # of Schema
_COMPRESSION = 3  # of RecordBatch


def read_message(
    message: bytes | memoryview, kind: str, *, offset: int | None = None
) -> pa.Message:
    """The message, which stands at byte `offset` of its frame, if it is one of this kind.

    Raises ProtocolViolation, or what Arrow raises for bytes that are no message.
    """
    _check_envelope(message, offset)
    reader = pa.BufferReader(message)
    found = pa.ipc.read_message(reader)
    if reader.tell() != reader.size():
        raise _bad(f"something follows the {kind}", offset)
    # Only in a message of this kind has Arrow checked that the offsets read below lie inside.
    if found.type != kind:
        raise _bad(f"expected a {kind}, got: {found.type}", offset)
    # Version 4 hides compression where nobody looks for it: in the message's own metadata.
    if found.metadata_version != pa.ipc.MetadataVersion.V5:
        raise _bad("only version 5 of Arrow's metadata is taken", offset)
    _check_header(memoryview(found.metadata), kind, offset)
    return found


def _check_envelope(message: bytes | memoryview, offset: int | None) -> None:
    if len(message) < _ENVELOPE.size:
        raise _bad("an Arrow message was expected", offset)
    marker, size = _ENVELOPE.unpack_from(message)
    is_sound = marker == _CONTINUATION and size > 0 and size % _ALIGNMENT == 0
    if not is_sound or _ENVELOPE.size + size > len(message):
        raise _bad("an Arrow message was expected", offset)


def _check_header(metadata: memoryview, kind: str, offset: int | None) -> None:
    root = _follow(metadata, 0)
    header_at = _field_offset(metadata, root, _HEADER)
    if not header_at:
        raise _bad(f"expected a {kind}, got: nothing", offset)
    header = _follow(metadata, root + header_at)
    if kind == RECORD_BATCH and _field_offset(metadata, header, _COMPRESSION):
        raise _bad("compressed buffers are refused", offset)
    # Little-endian is the default, and is not written then by most.
    endianness = _field_offset(metadata, header, _ENDIANNESS) if kind == SCHEMA else 0
    if endianness and struct.unpack_from("<h", metadata, header + endianness)[0]:
        raise _bad("columns are little-endian", offset)


def _follow(metadata: memoryview, at: int) -> int:
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _field_offset(metadata: memoryview, table: int, number: int) -> int:
    # A table starts with the distance to its vtable, which has two bytes for each field: where it
    # stands in the table, 0 if it does not.
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, vtable)[0]
    slot = 4 + 2 * number
    return int(struct.unpack_from("<H", metadata, vtable + slot)[0]) if slot < size else 0


def _bad(detail: str, offset: int | None) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail, offset=offset)
