"""Finds the splits of a source, and new ones as long as it runs.

Not who reads them: a source that cannot be asked for splits is read on all the same.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.sources.failure_backoff import FailureBackoff
from lookup_core.sources.split import Split
from service.engine.backend_call import backend_call
from service.engine.jitter import jitter
from service.engine.opened_adapter import opened_adapter
from service.sources.interface import Source, SplitEnumerator

log = structlog.get_logger()

_DISCOVERY_TIMEOUT_S = 60.0


class SplitDiscovery:
    """Keeps an enumerator open, and `on_splits` told of all splits that there are.

    With `most_failures` it gives up after so many in a row, or after one that will not pass.
    """

    def __init__(
        self,
        source: Source,
        schema: DimensionSchema,
        *,
        most_failures: int | None,
        on_splits: Callable[[Sequence[Split]], None],
        on_fault: Callable[[BackendError], None],
    ) -> None:
        self._source = source
        self._schema = schema
        self._most_failures = most_failures
        self._on_splits = on_splits
        self._on_fault = on_fault
        self._backoff = FailureBackoff()
        self.is_done = False  # it has told all splits that there were
        self.has_given_up = False
        self.fault: BackendError | None = None  # of the last try, if it failed

    async def run(self) -> None:
        """Until cancelled, or until it gives up; then the enumerator is closed."""
        while not self.has_given_up:
            try:
                async with opened_adapter(self._source.enumerator(self._schema)) as enumerator:
                    await self._discover(enumerator)
            except BackendError as error:
                await self._pause_after(error)

    async def _discover(self, enumerator: SplitEnumerator) -> None:
        interval_s = None if self._source.is_bounded else enumerator.discovery_interval_s
        while True:
            call = enumerator.discover()
            splits = await backend_call(call, timeout_s=_DISCOVERY_TIMEOUT_S)
            self._backoff.on_success()
            self.fault, self.is_done = None, True
            self._on_splits(splits)
            if interval_s is None:
                await asyncio.Event().wait()  # readers may need what it holds open
            else:
                await asyncio.sleep(interval_s)

    async def _pause_after(self, error: BackendError) -> None:
        pause_s = self._backoff.on_failure(jitter())
        self.fault = error
        if self._most_failures is not None:
            is_last = self._backoff.failures >= self._most_failures
            self.has_given_up = is_last or not error.is_retryable
        self._on_fault(error)
        if not self.has_given_up:
            await asyncio.sleep(pause_s)
