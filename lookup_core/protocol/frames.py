"""Frames of the streaming protocol `sidelook.v1`, which docs/reference/wire-protocol.md specifies.

`frame_codec` encodes them, `arrow_payload` their payloads. A *record* on the wire is one row of a
LOOKUP's payload, that is one distinct key.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions

PROTOCOL_VERSION = 1
SUBPROTOCOL = "sidelook.v1"
CONNECTION = 0  # the channel number of frames for the whole connection
MAX_CHANNELS = 64  # on one connection; a task opens one for each lookup of its pass
# https://www.w3.org/TR/trace-context/#traceparent-header, version 00, without all-zero ids
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The parent span of a request; a malformed one is ignored."""

    traceparent: str
    tracestate: str = ""

    @property
    def is_well_formed(self) -> bool:
        """Whether it names a span."""
        return _TRACEPARENT.fullmatch(self.traceparent) is not None


class FrameKind(IntEnum):
    """The first byte of a frame."""

    HELLO = 1
    OPEN = 2
    LOOKUP = 3
    WATERMARK = 4
    STATUS = 5
    CANCEL = 6
    CLOSE = 7
    CACHED = 8
    WELCOME = 65
    OPENED = 66
    CREDIT = 67
    RESULT = 68
    ERROR = 69
    CLOSED = 70
    GOAWAY = 71
    REASON = 72


@dataclass(frozen=True, slots=True)
class Hello:
    """Client: the first frame, with the protocol versions that it supports."""

    kind: ClassVar = FrameKind.HELLO
    versions: tuple[int, ...]
    agent: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Service: the chosen protocol version."""

    kind: ClassVar = FrameKind.WELCOME
    version: int
    agent: str


@dataclass(frozen=True, slots=True)
class Open:
    """Client: requests a channel to one dimension; `key` has the client's fields."""

    kind: ClassVar = FrameKind.OPEN
    channel: int
    dimension: str
    columns: tuple[str, ...] | None  # None: all columns of the dimension
    origin: str  # for people: job, stage, partition, attempt
    key: pa.Schema
    is_as_of: bool = False  # rows are lists of versions
    trace: TraceParent | None = None  # the parent span of the lookups
    options: LookupOptions = NO_OPTIONS
    wants_default: bool = False  # OPENED has the default row
    wants_reasons: bool = False  # REASON may precede a RESULT with errors


@dataclass(frozen=True, slots=True)
class Opened:
    """Service: the channel is open; its columns, key and exclusive credit."""

    kind: ClassVar = FrameKind.OPENED
    channel: int
    credit_records: int
    credit_bytes: int
    columns: pa.Schema
    key: tuple[str, ...]  # names of the dimension's key columns, in order
    versions: VersionColumns | None = None  # with `is_as_of`
    waits: bool = False  # lookups wait for changes up to their event time
    options: LookupOptions = NO_OPTIONS  # those of OPEN that the service keeps
    has_all_rows: bool = False  # columns are lists of the values of all rows of a key
    default: bytes | None = None  # record batch of `columns`, with `wants_default`
    cache: str | None = None  # folder of a shared cache, also relative to that of the socket


@dataclass(frozen=True, slots=True)
class Lookup:
    """Client: keys to look up, within the credit."""

    kind: ClassVar = FrameKind.LOOKUP
    channel: int
    sequence: int  # 1, 2, 3, … per channel and connection
    timeout_ms: int  # until the deadline of the records, retries included
    backlog_records: int  # waiting for credit at the client
    payload: bytes | memoryview  # record batch of the key fields
    event_time_ms: int | None = None  # the largest of its records, if the service `waits`


@dataclass(frozen=True, slots=True)
class Watermark:
    """Client: no record with an earlier event time follows on this channel."""

    kind: ClassVar = FrameKind.WATERMARK
    channel: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """Client: the channel becomes idle or active; an idle one does not hold watermarks back."""

    kind: ClassVar = FrameKind.STATUS
    channel: int
    is_idle: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Client: abandons a lookup, whose credit is returned."""

    kind: ClassVar = FrameKind.CANCEL
    channel: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Cached:
    """Client: lookups that the shared cache answered since the last such frame."""

    kind: ClassVar = FrameKind.CACHED
    channel: int
    hits: int  # outcomes, in keys
    missing: int
    defaults: int
    visited: bytes | memoryview  # slots of rows whose visits count, as little-endian int32


@dataclass(frozen=True, slots=True)
class Close:
    """Client: no more lookups follow; CLOSED comes after the last answer."""

    kind: ClassVar = FrameKind.CLOSE
    channel: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Service: additional credit of a channel."""

    kind: ClassVar = FrameKind.CREDIT
    channel: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """Service: answers to some keys of a lookup; `is_last` if no key is left."""

    kind: ClassVar = FrameKind.RESULT
    channel: int
    sequence: int
    is_last: bool
    has_rows: bool
    payload: bytes | memoryview  # record batch; see `arrow_payload`


@dataclass(frozen=True, slots=True)
class Reason:
    """Service: why keys of later RESULTs have this error code, and the remedy, for people."""

    kind: ClassVar = FrameKind.REASON
    channel: int
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Service: an ERROR frame, which ends the channel (or, for channel 0, the connection)."""

    kind: ClassVar = FrameKind.ERROR
    channel: int
    code: str
    detail: str
    is_retryable: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """Service: the channel is closed; all of its answers were sent."""

    kind: ClassVar = FrameKind.CLOSED
    channel: int


@dataclass(frozen=True, slots=True)
class Goaway:
    """Service: it is draining; the client sends nothing new and connects again."""

    kind: ClassVar = FrameKind.GOAWAY
    reason: str


ChannelFrame = Opened | Credit | Result | Reason  # to the client, on an open channel
Frame = (
    Hello
    | Welcome
    | Open
    | Opened
    | Lookup
    | Watermark
    | Status
    | Cancel
    | Cached
    | Close
    | Credit
    | Result
    | Reason
    | Failure
    | Closed
    | Goaway
)
