"""What goes into the state of a dimension, and what comes out; values only.

Apart from the state, because the engine and its tests speak in them.
"""

from dataclasses import dataclass, field

import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.keys.typed_keys import TypedKeys


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A question to one dimension; the deadline covers all tries."""

    id: LookupId
    channel: ChannelId
    keys: TypedKeys
    columns: tuple[str, ...]
    deadline_s: float
    event_time_ms: int | None = None  # the largest of its records, where they have one
    asked_by: object = None  # whom a trace knows it by; nothing here looks at it


@dataclass(frozen=True, slots=True)
class Delivery:
    """An answer for a lookup that waited; `is_last` when none of its keys is left."""

    lookup_id: LookupId
    answer: Answer
    is_last: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """What the shell has to do after an event."""

    deliveries: list[Delivery] = field(default_factory=list)
    cancelled: list[BatchId] = field(default_factory=list)  # at the backend, for nobody any more


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """A query to send now."""

    id: BatchId
    keys: pa.RecordBatch
    timeout_s: float
    tries: int = 1  # of its keys, this one included
