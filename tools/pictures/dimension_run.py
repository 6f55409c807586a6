"""One dimension of the core, driven by names and keys, for pictures of what it does."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import FetchedRows, LookupRequest
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import BatchSettings, DimensionSettings
from lookup_core.statistics import InvalidationOrigin

_SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
_DEADLINE_S = 100.0


class DimensionRun:
    """A dimension `customers` with the key `id` and the column `name`; time stands still."""

    def __init__(self) -> None:
        settings = DimensionSettings("customers", batch=BatchSettings(linger_s=0.0))
        self._state = DimensionState(settings, _SCHEMA)
        self._state.fence.relate(IdRelation.COMPARABLE)  # changes and reads are of one server
        self._keys: dict[int, list[int]] = {}  # {query: its keys}
        self._lookups: dict[LookupId, tuple[int, ...]] = {}  # {lookup: its keys}

    def look_up(self, *keys: int) -> dict[int, str]:
        """Start a lookup; {key: outcome and name} of the keys that are answered at once."""
        number = len(self._lookups) + 1
        typed = TypedKeys(_keys(keys), np.zeros(0, np.int32), {})
        ids = LookupId(number), ChannelId(number)
        self._lookups[ids[0]] = keys
        answers = self._state.submit(LookupRequest(*ids, typed, ("name",), _DEADLINE_S), 0.0)
        return {keys[at]: word for answer in answers for at, word in _words(answer)}

    def send(self) -> tuple[int, list[int]] | None:
        """The number and the keys of the query that is due; None if none is."""
        order = self._state.next_order(0.0)
        if order is None:
            return None
        self._keys[order.id] = order.keys.column(0).to_pylist()
        return order.id, self._keys[order.id]

    def land(self, query: int, names: Mapping[int, str], snapshot: str) -> list[dict[int, str]]:
        """A query returns with `pg_current_snapshot()`; {key: outcome and name} by lookup."""
        keys = [key for key in self._keys[query] if key in names]
        ordinals = np.array([self._keys[query].index(key) for key in keys], np.int32)
        rows = pa.record_batch([pa.array([names[key] for key in keys])], _SCHEMA.columns)
        fetched = FetchedRows(ordinals, rows, snapshot=TableSnapshot.parse(snapshot))
        effects = self._state.on_rows(BatchId(query), fetched, now=0.0)
        return [
            {self._lookups[each.lookup_id][at]: word for at, word in _words(each.answer)}
            for each in effects.deliveries
        ]

    def change(self, key: int, transaction: int) -> int:
        """The feed reports a change of a row; returns the number of rows dropped."""
        change = RowChanges(
            keys=_keys([key]),
            has_row=np.zeros(1, np.bool_),
            is_gone=np.zeros(1, np.bool_),
            rows=pa.record_batch([pa.nulls(1, pa.utf8())], _SCHEMA.columns),
            transaction_ids=np.array([transaction], np.uint32),
        )
        return self._state.on_changes([change], InvalidationOrigin.NOTIFICATION, 0.0)

    @property
    def cached_rows(self) -> int:
        """The number of cached rows."""
        return self._state.statistics().cache.rows

    @property
    def coalesced_keys(self) -> int:
        """Keys that joined a flight."""
        return self._state.statistics().coalesced_keys


def _keys(keys: list[int] | tuple[int, ...]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.int64())], _SCHEMA.key)


def _words(answer: Answer) -> list[tuple[int, str]]:
    names = [""] * answer.size if answer.rows is None else answer.rows["name"].to_pylist()
    outcomes = [Outcome(outcome).label for outcome in answer.outcomes.tolist()]
    return [
        (at, f"{outcome} {name}".strip())
        for at, outcome, name in zip(answer.positions.tolist(), outcomes, names, strict=True)
    ]
