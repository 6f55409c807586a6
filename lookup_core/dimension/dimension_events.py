"""Events and effects of a dimension's state, as values."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A lookup in one dimension; the deadline covers all attempts."""

    id: LookupId
    channel: ChannelId
    keys: TypedKeys
    columns: tuple[str, ...]
    deadline_s: float
    event_time_ms: int | None = None  # the largest of its records, if they have one


@dataclass(frozen=True, slots=True)
class Delivery:
    """An answer to a lookup that waited; `is_last` if none of its keys is left."""

    lookup_id: LookupId
    answer: Answer
    is_last: bool


@dataclass(frozen=True, slots=True)
class Effects:
    """What the shell has to do after an event."""

    deliveries: list[Delivery] = field(default_factory=list)
    cancelled: list[BatchId] = field(default_factory=list)  # at the backend, wanted by no lookup


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """A query to send now."""

    id: BatchId
    keys: pa.RecordBatch
    timeout_s: float
    tries: int = 1  # attempts for its keys, this one included


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The rows of a batch of keys; keys without a row are left out."""

    ordinals: npt.NDArray[np.int32]  # [m] which key of the batch each row belongs to
    rows: pa.RecordBatch  # [m] all columns of the dimension
    server: str = ""  # which server responded, if known: another may hold other rows
    snapshot: TableSnapshot | None = None  # the transactions that the read saw, if known
    read_at: float | None = None  # monotonic seconds; None: after the request
