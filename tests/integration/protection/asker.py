"""Questions to a sidecar by HTTP over its Unix socket, many at a time, with the time they took.

Judges nothing: what an answer must be is the tests' business.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

PATIENCE_S = 60.0  # what would be a failure of the test, not of a lookup
CONNECTIONS = 2_000
_UNANSWERED = frozenset({"error", "timeout"})


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer as it stands in the JSON, in the order of the keys; times are monotonic."""

    keys: Sequence[Any]
    asked_s: float
    ended_s: float
    status: int
    outcomes: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any] | None] = ()
    ages_ms: Sequence[int] = ()
    errors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # {position: what}
    detail: str = ""  # of a refused request

    @property
    def seconds(self) -> float:
        """From asking to the end."""
        return self.ended_s - self.asked_s

    @property
    def is_complete(self) -> bool:
        """Whether each key has its answer, be it that it has no row."""
        return self.status == 200 and _UNANSWERED.isdisjoint(self.outcomes)

    @property
    def codes(self) -> list[str]:
        """What went wrong with single keys, or with all of them."""
        return [error["code"] for error in self.errors.values()]

    @property
    def outcome(self) -> str:
        """That of the only key."""
        (outcome,) = self.outcomes
        return outcome


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one sidecar."""

    session: aiohttp.ClientSession
    timeout_ms: int

    @classmethod
    @asynccontextmanager
    async def of(cls, folder: Path, *, timeout_ms: int = 5_000) -> "AsyncIterator[Asker]":
        """A client of the sidecar with its socket in the folder."""
        connector = aiohttp.UnixConnector(str(folder / "sidelook.sock"), limit=CONNECTIONS)
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield cls(session, timeout_ms)

    async def ask(
        self, table: str, keys: Sequence[Any], *, timeout_ms: int | None = None
    ) -> Answered:
        """One request; a refusal of the whole of it is an answer without outcomes."""
        body = {"keys": list(keys), "timeout_ms": timeout_ms or self.timeout_ms}
        asked_s = time.monotonic()
        url = f"http://localhost/v1/dimensions/{table}/lookup"
        async with self.session.post(url, json=body) as response:
            told = await response.json(content_type=None)
        times = (keys, asked_s, time.monotonic(), response.status)
        if response.status != 200:
            return Answered(*times, errors={"": told}, detail=str(told))
        return Answered(
            *times, told["outcomes"], told["rows"], told["ages_ms"], told.get("errors", {})
        )

    async def ask_until(
        self, table: str, keys: Sequence[Any], *, outcome: str, within_s: float
    ) -> Answered:
        """Ask again and again until the only key has this outcome; that answer."""
        answered = await self.ask(table, keys)
        begun_s = answered.asked_s
        while list(answered.outcomes) != [outcome]:
            assert answered.ended_s - begun_s < within_s, answered
            await asyncio.sleep(0.02)  # a pace, not to be all that the sidecar does
            answered = await self.ask(table, keys)
        return answered
