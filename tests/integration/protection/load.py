"""Callers that ask a sidecar all the time, and what became of each of their lookups.

A closed loop with a pause: at an outage they get their answers at once, and must not ask faster.
What the callers' own event loop loses, as to the garbage collector of a long test run, is measured
beside, and is not the sidecar's delay.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.grace import GRACE_S
from tests.integration.protection.asker import Answered, Asker
from tests.integration.protection.customers import ROWS, lies

PAUSE_S = 0.02
KEYS = 10  # of one lookup
TICK_S = 0.01
LAG_S = 0.02  # from here on a tick is late


@dataclass(slots=True)
class Load:
    """Lookups of random customers, every tenth without a row."""

    asker: Asker
    answers: list[Answered] = field(default_factory=list)  # as they came in
    _lags: list[tuple[float, float]] = field(default_factory=list)  # when, how long: of own ticks
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def by(self, callers: int, *, seed: int = 0) -> AsyncIterator[None]:
        """So many callers ask meanwhile; at the end each gets the answer that it waits for."""
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for number in range(callers):
                tasks.create_task(self._ask_until(ended, random.Random(seed + number)))  # noqa: S311
            tasks.create_task(self._tick_until(ended))
            yield
            ended.set()

    async def first_success(self, asked_after_s: float, *, within_s: float) -> Answered:
        """The first lookup that was asked after this moment and got all that it asked for."""
        async with asyncio.timeout(asked_after_s + within_s - time.monotonic()):
            return await self._first(lambda it: it.is_complete and it.asked_s >= asked_after_s)

    async def first_failure(self, after_s: float, *, within_s: float) -> Answered:
        """The first lookup that ended after this moment without an answer to each key."""
        async with asyncio.timeout(after_s + within_s - time.monotonic()):
            return await self._first(lambda it: not it.is_complete and it.ended_s >= after_s)

    async def more_answers(self, count: int) -> None:
        """Wait for so many more."""
        count += len(self.answers)
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.answers) >= count)

    def late(self) -> list[str]:
        """Lookups that ended later than their deadline allows."""
        limit_s = self.asker.timeout_ms / 1000 + GRACE_S
        late = [each for each in self.answers if each.seconds - self._lag_s(each) > limit_s]
        return [f"{answered.seconds:.3f} s: {answered.outcomes}" for answered in late]

    def lies(self) -> list[str]:
        """All that was said and is not so."""
        return [lie for answered in self.answers for lie in lies(answered)]

    def codes(self) -> set[str]:
        """What went wrong with keys."""
        return {code for answered in self.answers for code in answered.codes}

    async def _first(self, is_meant: Callable[[Answered], bool]) -> Answered:
        async with self._arrived:
            while (found := next(filter(is_meant, self.answers), None)) is None:
                await self._arrived.wait()
            return found

    def _lag_s(self, answered: Answered) -> float:
        lags = (lag_s for due_s, lag_s in self._lags if answered.asked_s < due_s < answered.ended_s)
        return sum(lags)

    async def _tick_until(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            if (lag_s := time.monotonic() - due_s) > LAG_S:
                self._lags.append((due_s, lag_s))

    async def _ask_until(self, ended: asyncio.Event, chosen: random.Random) -> None:
        while not ended.is_set():
            keys = [chosen.randint(1, ROWS * 10 // 9) for _ in range(KEYS)]
            answered = await self.asker.ask("customers", keys)
            async with self._arrived:
                self.answers.append(answered)
                self._arrived.notify_all()
            await asyncio.sleep(PAUSE_S)
