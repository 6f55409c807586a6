"""Schema watch: describes the backend's table until it succeeds, and again when it changes."""

import asyncio
import time
from collections.abc import Callable

import structlog

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.warning_gate import WarningGate
from service.connectors.ports.backend import Backend
from service.engine.backend_call import backend_call
from service.engine.pause import jitter, pause

_FIRST_S = 0.1
_LONGEST_AWAY_S = 0.5
_LONGEST_UNFIT_S = 30.0
_AWAY = frozenset({ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.CONNECTION_LOST, ErrorCode.TIMEOUT})


class RecheckPace:
    """Pauses that double with each failure of the same kind, from 0.1 s on."""

    def __init__(self) -> None:
        self._longest_s = _LONGEST_AWAY_S
        self._next_s = _FIRST_S

    def pause_s(self, code: ErrorCode, *, jitter: float) -> float:
        """The pause after a failure; `jitter` in [0, 1) spreads it over its upper half."""
        longest_s = _LONGEST_AWAY_S if code in _AWAY else _LONGEST_UNFIT_S
        if longest_s != self._longest_s:
            self._longest_s, self._next_s = longest_s, _FIRST_S
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, longest_s)
        return pause_s * (0.5 + jitter / 2)

    def on_success(self) -> None:
        """The next failure is a first one again."""
        self._next_s = _FIRST_S


log = structlog.get_logger()

_DESCRIBE_TIMEOUT_S = 5.0
_REST_S = 1.0  # between two descriptions that told nothing new
_UNFIT = frozenset({ErrorCode.TABLE_UNAVAILABLE, ErrorCode.FORBIDDEN})


class SchemaWatch:
    """The schema of one dimension, as long as its table is fit for lookups.

    `on_described` gets each description before it is known here; it raises BackendError for one
    that it cannot use. `on_unfit` is told when a schema that was known is not any more. Every
    `recheck_s` it asks without a doubt, for what no refused query shows; None: never.
    """

    def __init__(
        self,
        dimension: str,
        backend: Backend,
        *,
        on_described: Callable[[DimensionSchema], None],
        on_unfit: Callable[[ErrorCode], None],
        recheck_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dimension = dimension
        self._backend = backend
        self._on_described = on_described
        self._on_unfit = on_unfit
        self._recheck_s = recheck_s
        self._clock = clock
        self._schema: DimensionSchema | None = None
        self._fault = BackendError(
            ErrorCode.BACKEND_UNAVAILABLE, f"the store of {dimension} has not answered yet"
        )
        self._was_known = asyncio.Event()
        self._doubts: list[asyncio.Future[bool]] = []  # each waits for a description begun after it
        self._is_doubted = asyncio.Event()
        self._last_finding: bool | None = None  # what doubts are told at once during a pause
        self._pace = RecheckPace()
        self._warnings = WarningGate()

    def known(self) -> DimensionSchema:
        """The schema; raises BackendError with the last fault while it is not known."""
        if self._schema is None:
            # Raised again and again, it would collect the frames of all its callers.
            raise self._fault.with_traceback(None)
        return self._schema

    async def wait(self, timeout_s: float) -> DimensionSchema:
        """The schema; the first time, as soon as it is known.

        Raises BackendError when the time is over, and at once for a table that is no longer fit.
        """
        if self._was_known.is_set():
            return self.known()
        await pause(self._was_known, timeout_s)
        return self.known()  # it raises what is really wrong

    async def is_unchanged(self) -> bool:
        """Whether the store, asked anew, still describes itself as it did; for a refused query.

        False also when it cannot be asked now. All who ask share one description, which begins
        after they asked, or was made less than a second ago. Cancellation leaves it to the others.
        """
        self._is_doubted.set()
        if self._last_finding is not None:
            return self._last_finding
        doubt: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._doubts.append(doubt)
        return await doubt

    async def run(self) -> None:
        """Ask until the store has described itself, and again at each doubt, until cancelled."""
        while True:
            self._is_doubted.clear()
            doubts, self._doubts = self._doubts, []
            fault = await self._describe_once(doubts)
            if fault is None:
                await pause(self._is_doubted, self._recheck_s)
            else:
                await self._pause(self._pace.pause_s(fault, jitter=jitter()), finding=False)

    async def _describe_once(self, doubts: list["asyncio.Future[bool]"]) -> ErrorCode | None:
        """What is wrong, None if nothing is; a rest is taken after what was no news."""
        try:
            schema = await self._described()
        except BackendError as error:
            self._on_fault(error)
            _tell(doubts, finding=False)
            return error.code
        is_unchanged = self._schema is not None and self._schema.is_same(schema)
        self._on_schema(schema, is_news=not is_unchanged)
        _tell(doubts, finding=is_unchanged)
        if is_unchanged:
            await self._pause(_REST_S, finding=True)
        return None

    async def _described(self) -> DimensionSchema:
        call = self._backend.describe(timeout_s=_DESCRIBE_TIMEOUT_S)
        schema = await backend_call(call, timeout_s=_DESCRIBE_TIMEOUT_S)
        self._on_described(schema)
        return schema

    def _on_schema(self, schema: DimensionSchema, *, is_news: bool) -> None:
        self._schema = schema
        self._was_known.set()
        self._pace.on_success()
        self._warnings.on_success()
        if is_news:
            log.info("dimension.described", dimension=self._dimension)

    def _on_fault(self, error: BackendError) -> None:
        self._fault = error
        if self._warnings.is_due(str(error), self._clock()):
            log.warning(
                "dimension.unavailable",
                dimension=self._dimension,
                code=error.code,
                detail=error.detail,
            )
        if error.code in _UNFIT and self._schema is not None:
            self._schema = None
            self._on_unfit(error.code)

    async def _pause(self, pause_s: float, *, finding: bool) -> None:
        self._last_finding = finding
        await asyncio.sleep(pause_s)
        self._last_finding = None


def _tell(doubts: list["asyncio.Future[bool]"], *, finding: bool) -> None:
    for doubt in doubts:
        if not doubt.done():  # done: who asked was cancelled
            doubt.set_result(finding)
