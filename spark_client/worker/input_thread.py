"""Input of one partition, read ahead in a thread; and the event that wakes its operator.

So output and idleness do not depend on the input: the operator never waits for input alone.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa


class WakeUp(threading.Event):
    """Wakes the one thread that waits; `set` before the wait counts, from any thread."""

    def wait_and_clear(self, timeout_s: float) -> None:
        """Wait for a `set` since the last wait, at most `timeout_s`."""
        self.wait(timeout_s)
        self.clear()


class InputThread:
    """The batches of a partition; a thread reads them ahead, up to a bound of rows or bytes."""

    def __init__(self, wake_up: WakeUp, *, most_rows: int, most_bytes: int) -> None:
        """`wake_up` is set for each batch and at the end."""
        self._wake_up = wake_up
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._changed = threading.Condition()  # protects everything below
        self._batches: deque[pa.RecordBatch] = deque()
        self._rows = 0
        self._bytes = 0
        self._has_ended = False
        self._is_closed = False
        self._error: BaseException | None = None

    @contextmanager
    def reading(self, batches: Iterable[pa.RecordBatch]) -> Iterator[None]:
        """Read these batches; the end of the context ends the reading with the next batch."""
        thread = threading.Thread(
            target=self._read, args=(batches,), name="sidelook-input", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify()

    def take_batch(self) -> pa.RecordBatch | None:
        """The next batch, without waiting; None if there is none yet.

        Raises the error of the input, once all batches before it are taken.
        """
        with self._changed:
            if not self._batches:
                if self._error is not None:
                    raise self._error
                return None
            batch = self._batches.popleft()
            self._rows -= batch.num_rows
            self._bytes -= batch.nbytes
            self._changed.notify()
            return batch

    @property
    def is_over(self) -> bool:
        """Whether the input has ended and all batches are taken."""
        with self._changed:
            return self._has_ended and not self._batches and self._error is None

    def _read(self, batches: Iterable[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                if not self._put_batch(batch):
                    return
        except BaseException as error:  # noqa: BLE001 -- `take_batch` raises it in the operator's thread
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
            self._wake_up.set()

    def _put_batch(self, batch: pa.RecordBatch) -> bool:
        """Add a batch once there is room; False after the close."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            if self._is_closed:
                return False
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        self._wake_up.set()
        return True

    def _has_room(self) -> bool:
        is_full = self._rows >= self._most_rows or self._bytes >= self._most_bytes
        return self._is_closed or not is_full
