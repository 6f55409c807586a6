"""What changes the rows of another backend, and leaves all else to it.

A base for such backends: what they do to schema and rows is their own.
"""

from types import TracebackType
from typing import Self

from service.backends.interface import Backend


class AroundBackend:
    """Opened, closed and probed as the backend within."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def uses_index(self) -> bool | None:
        """As the backend says."""
        return self._backend.uses_index

    async def __aenter__(self) -> Self:
        """Open the backend."""
        await self._backend.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the backend."""
        await self._backend.__aexit__(kind, error, traceback)

    async def probe(self, *, timeout_s: float) -> None:
        """Ask the backend."""
        await self._backend.probe(timeout_s=timeout_s)
