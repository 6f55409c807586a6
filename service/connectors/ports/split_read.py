"""Split reads of a load: a pending read that outlives its caller, and the read rows as changes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, Mask, RowChanges

WAIT_S = 1.0  # the maximal duration of a reader's `read`

Result = TypeVar("Result")


class PendingRead(Generic[Result]):
    """At most one read at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Result] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether a read was begun whose result is not taken yet."""
        return self._task is not None

    @property
    def is_done(self) -> bool:
        """Whether a result can be taken without waiting."""
        return self._task is not None and self._task.done()

    def begin(self, reading: Coroutine[Any, Any, Result]) -> None:
        """Begin a read; the result of the former one was taken."""
        assert self._task is None
        self._task = asyncio.create_task(reading)

    async def take(self) -> Result | None:
        """The result of the read, once; None if it is still pending after a second.

        Raises what the read raised. After a cancellation the next call continues.
        """
        assert self._task is not None
        await asyncio.wait({self._task}, timeout=WAIT_S)
        if not self._task.done():
            return None
        task, self._task = self._task, None
        return task.result()

    async def cancel(self) -> None:
        """Cancel the read, if there is one; its result or error is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.exception()  # retrieved, else asyncio logs it
            self._task = None


def loaded_rows(
    keys: pa.RecordBatch, rows: pa.RecordBatch, has_row: Mask | None = None
) -> RowChanges:
    """Each row as the current row of its key; rows with a NULL in the key are left out.

    Where `has_row` is false, the row could not be read.
    """
    has_row = np.ones(keys.num_rows, np.bool_) if has_row is None else has_row
    is_whole = np.ones(keys.num_rows, np.bool_)
    for column in keys.columns:
        is_whole &= column.is_valid().to_numpy(zero_copy_only=False)
    if not is_whole.all():
        keys, rows = keys.filter(pa.array(is_whole)), rows.filter(pa.array(is_whole))
        has_row = has_row[is_whole]
    count = keys.num_rows
    return RowChanges(
        keys=keys,
        has_row=has_row,
        is_gone=np.zeros(count, np.bool_),
        rows=rows,
        transaction_ids=np.full(count, UNKNOWN_TRANSACTION, np.uint32),
    )
