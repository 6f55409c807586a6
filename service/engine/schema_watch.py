"""Schema watch: describes the backend's table until it succeeds, and again on request.

Compares descriptions only; the dimension acts on a new one.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from lookup_core.backoff import Backoff
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, of_dimension
from lookup_core.rate_limits import EventRateLimit
from service.engine.backend_call import BackendCalls
from service.engine.pause import jitter, pause

log = structlog.get_logger()

_DESCRIBE_TIMEOUT_S = 5.0
RECHECK_S = 60.0
_INDEX_RECHECK_S = 30.0  # while keys are found by scans: an index may have been created
_REST_S = 1.0  # after a description that changed nothing
_AWAY = frozenset({ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.CONNECTION_LOST, ErrorCode.TIMEOUT})
_UNFIT = frozenset({ErrorCode.TABLE_UNAVAILABLE, ErrorCode.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class SchemaOwner:
    """Acts on descriptions: `on_described` gets each one first, `on_unfit` the loss of a schema.

    `on_described` raises BackendError for a description that it cannot use.
    """

    on_described: Callable[[DimensionSchema], None]
    on_unfit: Callable[[ErrorCode], None]


class SchemaWatch:
    """The schema of one dimension, as long as its table is fit for lookups.

    The table is described again every `recheck_s`, or sooner without an index, for changes that no
    refused query shows.
    """

    def __init__(
        self,
        dimension: str,
        backend: BackendCalls,
        *,
        recheck_s: float = RECHECK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dimension = dimension
        self._backend = backend
        self._recheck_s = recheck_s
        self._clock = clock
        self._schema: DimensionSchema | None = None
        self._fault = BackendError(
            ErrorCode.BACKEND_UNAVAILABLE, "the backend has not responded yet"
        )
        self._is_settled = asyncio.Event()  # by a schema, or a permanent fault
        self._checks: list[asyncio.Future[bool]] = []  # each waits for a later description
        self.is_requested = asyncio.Event()  # another description, at most a second later
        self._paused_result: bool | None = None  # what checks during a pause return
        self._away = Backoff(initial_s=0.1, max_s=2.0)  # the default timeout of a lookup
        self._unfit = Backoff(initial_s=0.1, max_s=30.0)
        self._fault_logs = EventRateLimit()

    @property
    def fault(self) -> BackendError | None:
        """Why the schema is not known; None if it is."""
        return self._fault if self._schema is None else None

    def known(self) -> DimensionSchema:
        """The schema; raises BackendError, with the dimension, before the first description.

        Also while there is no table, or it may not be read.
        """
        if self._schema is None:
            raise self.last_fault()
        return self._schema

    def last_fault(self) -> BackendError:
        """The last fault, or that there was no description yet, with the dimension."""
        fault = self._fault
        detail = of_dimension(self._dimension, fault.detail)
        return BackendError(fault.code, detail, is_permanent=fault.is_permanent)

    async def wait(self, timeout_s: float) -> DimensionSchema:
        """The schema; before the first description, waits for it.

        Raises BackendError after `timeout_s`; at once if a known schema is lost, or after a
        permanent fault.
        """
        await pause(self._is_settled, timeout_s)
        return self.known()  # or the last fault

    async def describe_again(self) -> bool:
        """Describe the table now, and return whether the description equals the known one.

        False also if the table cannot be described now. Concurrent calls share a description, which
        begins after them or ended less than a second ago.
        """
        self.is_requested.set()
        if self._paused_result is not None:
            return self._paused_result
        check: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._checks.append(check)
        return await check

    async def run(self, owner: SchemaOwner) -> None:
        """Describe the table until that succeeds, and again on request, until cancelled."""
        while True:
            self.is_requested.clear()
            checks, self._checks = self._checks, []
            fault = await self._describe_once(checks, owner)
            if fault is None:
                await pause(self.is_requested, self._until_recheck_s())
            else:
                await self._pause(self.delay_s(fault, jitter=jitter()), result=False)

    def delay_s(self, fault: ErrorCode, *, jitter: float) -> float:
        """Seconds until the next description after this fault; the other kind's count restarts."""
        backoff, other = self._away, self._unfit
        if fault not in _AWAY:
            backoff, other = other, backoff
        other.on_success()
        return backoff.on_failure(jitter)

    def _until_recheck_s(self) -> float:
        has_no_index = self._backend.backend.uses_index is False
        return min(self._recheck_s, _INDEX_RECHECK_S) if has_no_index else self._recheck_s

    async def _describe_once(
        self, checks: list["asyncio.Future[bool]"], owner: SchemaOwner
    ) -> ErrorCode | None:
        """The error, None for success; pauses after a description that changed nothing."""
        try:
            schema = await self._backend.describe(timeout_s=_DESCRIBE_TIMEOUT_S)
            owner.on_described(schema)
        except BackendError as error:
            self._on_fault(error, owner)
            _end(checks, result=False)
            return error.code
        is_unchanged = self._schema is not None and self._schema.is_same(schema)
        self._on_schema(schema, is_new=not is_unchanged)
        _end(checks, result=is_unchanged)
        if is_unchanged:
            await self._pause(_REST_S, result=True)
        return None

    def _on_schema(self, schema: DimensionSchema, *, is_new: bool) -> None:
        self._schema = schema
        self._is_settled.set()
        for part in (self._away, self._unfit, self._fault_logs):
            part.on_success()
        if is_new:
            log.info("dimension.described", dimension=self._dimension)

    def _on_fault(self, error: BackendError, owner: SchemaOwner) -> None:
        self._fault = error
        if error.is_permanent:
            self._is_settled.set()
        if self._fault_logs.is_due(str(error), self._clock()):
            log.warning(
                "dimension.unavailable",
                dimension=self._dimension,
                code=error.code,
                detail=error.detail,
            )
        if error.code in _UNFIT and self._schema is not None:
            self._schema = None
            owner.on_unfit(error.code)

    async def _pause(self, pause_s: float, *, result: bool) -> None:
        self._paused_result = result
        await asyncio.sleep(pause_s)
        self._paused_result = None


def _end(checks: list["asyncio.Future[bool]"], *, result: bool) -> None:
    for check in checks:
        if not check.done():  # done: its caller was cancelled
            check.set_result(result)
