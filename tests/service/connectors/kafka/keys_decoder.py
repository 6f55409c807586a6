"""A decoder for tests of the transport: a message's key is a number, and its value is ignored."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import (
    Change,
    ChangeMessage,
    Decoded,
    ReplayFilter,
    RowChanges,
    TableChange,
)
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS

SCHEMA = DimensionSchema(
    key=pa.schema([pa.field("id", pa.int64(), nullable=False)]),
    columns=pa.schema([pa.field("name", pa.utf8())]),
)
NOT_UNDERSTOOD = "not a number"


class KeysDecoder:
    """The row of each key is deleted; any other key is a fault."""

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """One change for each message, with the time of the latest one."""
        del log
        changes: list[Change] = []
        faults: dict[int, str] = {}
        for index, message in enumerate(messages):
            if message.key is not None and message.key.isdigit():
                changes.append(_gone(int(message.key)))
            elif message.key is not None:
                changes.append(TableChange(NOT_UNDERSTOOD))
                faults[index] = NOT_UNDERSTOOD
        latest_ms = max((message.timestamp for message in messages), default=NO_WATERMARK_MS)
        return Decoded(changes, latest_ms, 0, faults)


def _gone(key: int) -> RowChanges:
    return RowChanges(
        keys=pa.record_batch({"id": pa.array([key])}),
        has_row=np.array([False]),
        is_gone=np.array([True]),
        rows=pa.record_batch({"name": pa.array([None], pa.utf8())}),
        transaction_ids=np.array([0], np.uint32),
    )
