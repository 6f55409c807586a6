"""A reader or an enumerator that is open for a while, whatever its adapter does.

Not the calls between: each of those has its own time limit.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol, Self, TypeVar

import structlog

from lookup_core.errors import BackendError
from service.engine.backend_call import backend_call

log = structlog.get_logger()

OPENING_TIMEOUT_S = 30.0
_CLOSING_TIMEOUT_S = 1.0


class Openable(Protocol):
    """What readers and enumerators have in common."""

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect."""


Adapter = TypeVar("Adapter", bound=Openable)


@asynccontextmanager
async def opened_adapter(adapter: Adapter) -> AsyncIterator[Adapter]:
    """The adapter, open until the block ends; raises BackendError if it cannot be opened.

    A fault in closing it is logged: what it read is not worse for that.
    """
    opened = await backend_call(adapter.__aenter__(), timeout_s=OPENING_TIMEOUT_S)
    try:
        yield opened
    finally:
        await _close(opened)


async def _close(adapter: Openable) -> None:
    try:
        await backend_call(adapter.__aexit__(None, None, None), timeout_s=_CLOSING_TIMEOUT_S)
    except BackendError as error:
        log.warning("source.unclosed", code=error.code, detail=error.detail)
