"""Learns a dimension's schema from its backend, however long the backend is away.

Not a cache of rows: the sidecar starts while the database is down, and this is what waits for it.
"""

import asyncio
import random

import structlog

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import Backend
from service.engine.backend_call import backend_call

log = structlog.get_logger()

_DESCRIBE_TIMEOUT_S = 5.0
_FIRST_DELAY_S = 0.1
_LONGEST_DELAY_S = 30.0


class SchemaWatch:
    """The schema of one dimension, once known."""

    def __init__(self, dimension: str, backend: Backend) -> None:
        self._dimension = dimension
        self._backend = backend
        self._schema: DimensionSchema | None = None
        self._fault = BackendError(
            ErrorCode.UPSTREAM_UNAVAILABLE, f"the store of {dimension} has not answered yet"
        )
        self._is_known = asyncio.Event()

    def known(self) -> DimensionSchema:
        """The schema; raises BackendError with the last fault while it is not known."""
        if self._schema is None:
            raise self._fault
        return self._schema

    async def wait(self, timeout_s: float) -> DimensionSchema:
        """The schema as soon as it is known; raises BackendError when the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_known.wait()
        except TimeoutError:
            pass  # `known` raises what is really wrong
        return self.known()

    async def learn(self) -> DimensionSchema:
        """Ask until the backend answers, with growing pauses up to 30 s."""
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                self._schema = await self._describe()
            except BackendError as error:
                self._fault = error
                log.warning(
                    "dimension.unavailable",
                    dimension=self._dimension,
                    code=error.code,
                    detail=error.detail,
                )
                await asyncio.sleep(delay_s * (0.5 + random.random() / 2))  # noqa: S311 -- jitter
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
            else:
                self._is_known.set()
                log.info("dimension.described", dimension=self._dimension)
                return self._schema

    async def _describe(self) -> DimensionSchema:
        call = self._backend.describe(timeout_s=_DESCRIBE_TIMEOUT_S)
        return await backend_call(call, timeout_s=_DESCRIBE_TIMEOUT_S)
