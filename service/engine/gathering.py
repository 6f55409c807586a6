"""Gathers the answers of one request, which is submitted in parts of bounded size."""

import asyncio
from collections.abc import Callable, Iterator

from lookup_core.answer import Answer
from lookup_core.dimension.dimension_events import Delivery, LookupId, Submitted
from lookup_core.errors import SidelookError
from lookup_core.keys.typed_keys import TypedKeys

FIRST_KEYS = 16  # before the size of rows is known; each part is twice as large
_MAX_FIRST_KEYS = 128  # if only rows of earlier lookups are known
_MAX_PART_KEYS = 2048  # later rows may be larger, and are copied before they are counted
_MAX_PART_BYTES = 4 * 1024 * 1024

Deliver = Callable[[Delivery], None]


Take = Callable[[Answer], None]  # sees each answer before it is kept; raises to end the lookup


class AnswerGathering:
    """The answers to all parts of one lookup; used by one event loop only."""

    def __init__(self, keys: TypedKeys, take: Take, *, first_keys: int = FIRST_KEYS) -> None:
        self.answers: list[Answer] = []
        self.lookup_ids: list[LookupId] = []  # for `leave` at the end
        self._keys = keys
        self._take = take
        self._first_keys = first_keys
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: SidelookError | None = None  # raised by `take`
        self._unanswered = keys.size
        self._row_count = 0
        self._row_bytes = 0

    @property
    def first_keys(self) -> int:
        """The size of the next lookup's first part, from the size of this lookup's rows."""
        if not self._row_count:
            return self._first_keys
        return min(_MAX_FIRST_KEYS, self._max_keys())

    def parts(self) -> Iterator[tuple[int, TypedKeys]]:
        """The keys in parts, at least one, each with its start.

        The size of later parts depends on the rows of earlier ones.
        """
        start, count = 0, min(self._first_keys, self._keys.size)
        yield start, self._keys.part(start, count)
        while (start := start + count) < self._keys.size:
            count = min(2 * count, _MAX_PART_KEYS, self._max_keys(), self._keys.size - start)
            yield start, self._keys.part(start, count)

    def on_submitted(self, start: int, submitted: Submitted) -> None:
        """Take the immediate answers to a part; raises what `take` raises."""
        self.lookup_ids.append(submitted.lookup_id)
        for answer in submitted.answers:
            self._keep(answer.moved(start))

    def delivery(self, start: int) -> Deliver:
        """The callback for a part's later answers; it does not raise."""

        def deliver(delivery: Delivery) -> None:
            if self._ended.done():  # failed or cancelled, and its caller has not run yet
                return
            try:
                self._keep(delivery.answer.moved(start))
            except SidelookError as error:
                # Without its frames, and not in the future: a cycle would keep the answers until
                # the next collection, which may never come while memory is short.
                self._error = error.with_traceback(None)
                self.answers.clear()
                self._ended.set_result(None)

        return deliver

    async def end(self) -> None:
        """Wait for the last answer; raises what `take` raises."""
        if self._unanswered:
            await self._ended
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this frame

    def _keep(self, answer: Answer) -> None:
        self._take(answer)
        self.answers.append(answer)
        self._unanswered -= answer.size
        if answer.rows is not None:
            self._row_count += answer.size
            self._row_bytes += answer.total_bytes
        if not self._unanswered and not self._ended.done():
            self._ended.set_result(None)

    def _max_keys(self) -> int:
        if not self._row_count:
            return self._keys.size
        return max(1, _MAX_PART_BYTES * self._row_count // self._row_bytes)
