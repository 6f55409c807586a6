"""The language of the streaming protocol `sidelook.v1`: one frozen class per frame.

Meaning only; the bytes are `frame_codec`'s, the Arrow payloads `arrow_payload`'s, and
docs/wire_protocol.md says it all for clients in other languages.

A *record* on the wire is one row of a LOOKUP's payload: one distinct key of a slice of input.
"""

from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.protocol.trace_parent import TraceParent

PROTOCOL_VERSION = 1
SUBPROTOCOL = "sidelook.v1"
CONNECTION = 0  # the channel number of frames that concern the whole connection


class FrameKind(IntEnum):
    """The first byte of a frame."""

    HELLO = 1
    OPEN = 2
    LOOKUP = 3
    WATERMARK = 4
    STATUS = 5
    CANCEL = 6
    CLOSE = 7
    WELCOME = 65
    OPENED = 66
    CREDIT = 67
    RESULT = 68
    ERROR = 69
    CLOSED = 70
    GOAWAY = 71


@dataclass(frozen=True, slots=True)
class Hello:
    """Client: the first frame; the versions that it speaks."""

    versions: tuple[int, ...]
    agent: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Service: the version chosen, and who answers."""

    version: int
    agent: str


@dataclass(frozen=True, slots=True)
class Open:
    """Client: a new channel to one dimension; the key fields as the client has them."""

    channel: int
    dimension: str
    columns: tuple[str, ...] | None  # None: all that the dimension offers
    origin: str  # who asks, for people: job, stage, partition, attempt
    key: pa.Schema
    is_as_of: bool = False  # the client picks a version of each row by its records' times
    trace: TraceParent | None = None  # that its lookups belong to


@dataclass(frozen=True, slots=True)
class Opened:
    """Service: the channel stands; the columns' types, the key and the exclusive credit."""

    channel: int
    credit_records: int
    credit_bytes: int
    columns: pa.Schema
    key: tuple[str, ...]  # names of the dimension's key columns, in its order
    versions: VersionColumns | None = None  # names; rows are lists then
    waits: bool = False  # for changes up to the time of a lookup, if it has one


@dataclass(frozen=True, slots=True)
class Lookup:
    """Client: keys to look up, at most as many as there is credit."""

    channel: int
    sequence: int  # 1, 2, 3, … per channel and connection
    timeout_ms: int  # what is left of the records' time, retries included
    backlog_records: int  # ready at the client, held back for want of credit
    payload: bytes | memoryview  # record batch of the key fields
    event_time_ms: int | None = None  # the largest of its records; where the service `waits`


@dataclass(frozen=True, slots=True)
class Watermark:
    """Client: no record with an earlier event time will follow on this channel."""

    channel: int
    watermark_ms: int


@dataclass(frozen=True, slots=True)
class Status:
    """Client: the channel has nothing to say for now, or has again."""

    channel: int
    is_idle: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Client: nobody waits for this lookup any more; its credit comes back."""

    channel: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Close:
    """Client: no more lookups; CLOSED follows after the last answer."""

    channel: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Service: so much more may be sent on the channel."""

    channel: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """Service: answers to some keys of a lookup; `is_last` when none is left."""

    channel: int
    sequence: int
    is_last: bool
    has_rows: bool
    payload: bytes | memoryview  # record batch: see `arrow_payload`


@dataclass(frozen=True, slots=True)
class Failure:
    """Service: an ERROR frame; the channel (or connection, for channel 0) cannot go on."""

    channel: int
    code: str
    detail: str
    is_retryable: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """Service: all answers of the channel were sent; the channel is gone."""

    channel: int


@dataclass(frozen=True, slots=True)
class Goaway:
    """Service: it is going; send nothing new here, connect again."""

    reason: str


Frame = (
    Hello
    | Welcome
    | Open
    | Opened
    | Lookup
    | Watermark
    | Status
    | Cancel
    | Close
    | Credit
    | Result
    | Failure
    | Closed
    | Goaway
)
