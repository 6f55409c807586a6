"""Effects of a `StreamServer`: what its caller does next, and the offer of a channel."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.keys.key_index import Slots
from lookup_core.protocol import frames
from lookup_core.protocol.server_channel import ChannelSchema, LookupPart, ServerLookup


@dataclass(frozen=True, slots=True)
class Describe:
    """A client requests this channel."""

    requested: frames.Open


@dataclass(frozen=True, slots=True)
class StopDescribing:
    """The client has closed the requested channel of this number."""

    channel: int


@dataclass(frozen=True, slots=True)
class Received:
    """A LOOKUP has arrived: begin its span."""

    lookup: ServerLookup


@dataclass(frozen=True, slots=True)
class Submit:
    """Look up these keys: hand each answer to `StreamServer.on_answer` of the connection."""

    part: LookupPart
    keys: pa.RecordBatch  # as the client sent them


@dataclass(frozen=True, slots=True)
class Leave:
    """A lookup has ended without its last answer; `timed_out` of its records are due to that."""

    lookup: ServerLookup
    parts: tuple[LookupPart, ...]  # with unanswered records
    timed_out: int


@dataclass(frozen=True, slots=True)
class CountCached:
    """The keys by outcome, and the slots of visited rows."""

    dimension: str
    outcomes: Mapping[Outcome, int]
    visited: Slots


@dataclass(frozen=True, slots=True)
class Revoke:
    """A channel, maybe of another connection, has lost its share to a new one."""

    connection: int
    channel: int


Effect = Describe | StopDescribing | Received | Submit | Leave | CountCached | Revoke


@dataclass(frozen=True, slots=True)
class Offer:
    """A described dimension, as a client requested it."""

    schema: ChannelSchema
    waits: bool = False
    has_all_rows: bool = False
    default: pa.RecordBatch | None = None  # the default row, if it was requested
    cache: str | None = None  # the folder of its shared cache
