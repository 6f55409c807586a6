"""HTTP callers of a sidecar, the table `customers` and a check of their answers."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tools.processes.postgres_server import Database

ROWS = 2_000  # keys from 1 to ROWS have a row
ABSENT = ROWS + 1  # the first key without a row
CONNECTIONS = 2_000
KEYS = 10  # of each lookup of a load
PATIENCE_S = 60.0  # a test that waits longer has failed
PAUSE_S = 0.02  # between the lookups of a caller, so that immediate errors do not become a flood
POOL = 4  # connections of the sidecar
UNCACHED = {"cache": {"mode": "none"}, "batch": {"max_in_flight": POOL}}
HAS_POOL = f"""(SELECT count(*) <= {POOL} AND bool_and(state !~ '^idle in transaction')
    FROM pg_stat_activity
    WHERE application_name = 'sidelook' AND datname = current_database())"""
UNREACHABLE = {"backend_unavailable", "connection_lost", "timeout"}
_UNANSWERED = frozenset({"error", "timeout"})


def put_customers(database: Database, *, table: str = "customers") -> None:
    """Create the table."""
    database.execute(
        f"CREATE TABLE {table} (id int8 PRIMARY KEY, name text NOT NULL)",
        f"INSERT INTO {table} SELECT id, 'customer ' || id FROM generate_series(1, {ROWS}) AS id",
        f"ANALYZE {table}",
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request, in the order of its keys."""

    keys: Sequence[Any]
    status: int
    outcomes: Sequence[str] = ()
    rows: Sequence[Mapping[str, Any] | None] = ()
    ages_ms: Sequence[int] = ()
    errors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # {position: problem}

    @property
    def is_complete(self) -> bool:
        """Whether each key is answered with a row or as missing."""
        return self.status == 200 and _UNANSWERED.isdisjoint(self.outcomes)

    @property
    def codes(self) -> set[str]:
        """The error codes of keys, or of the request."""
        return {error["code"] for error in self.errors.values()}

    def faults(self) -> Iterator[str]:
        """Answers that contradict the table `customers`; a failed key contradicts nothing."""
        if self.status != 200:
            yield f"status {self.status}: {self.errors}"
        for key, outcome, row in zip(self.keys, self.outcomes, self.rows, strict=False):
            name = f"customer {key}" if 1 <= key <= ROWS and outcome not in _UNANSWERED else None
            if (row["name"] if row else None) != name:
                yield f"key {key}: {outcome} {row}"


@dataclass(slots=True)
class Callers:
    """Callers of one sidecar, and the answers to those under load."""

    session: aiohttp.ClientSession
    timeout_ms: int
    answers: list[Answer] = field(default_factory=list)
    complete: Counter[str] = field(default_factory=Counter)  # {table: complete answers}
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def look_up(
        self, table: str, keys: Sequence[Any], *, timeout_ms: int | None = None
    ) -> Answer:
        """Send one request."""
        body = {"keys": list(keys), "timeout_ms": timeout_ms or self.timeout_ms}
        url = f"http://localhost/v1/dimensions/{table}/lookup"
        async with self.session.post(url, json=body) as response:
            reply = await response.json(content_type=None)
        if response.status != 200:
            return Answer(keys, response.status, errors={"": reply})
        return Answer(
            keys, 200, reply["outcomes"], reply["rows"], reply["ages_ms"], reply.get("errors", {})
        )

    async def look_up_until(self, outcome: str, table: str, key: int) -> Answer:
        """Repeat the lookup until it has this outcome."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                answer = await self.look_up(table, [key])
                if list(answer.outcomes) == [outcome]:
                    return answer
                await asyncio.sleep(PAUSE_S)

    @asynccontextmanager
    async def load(
        self, callers: int, tables: Sequence[str] = ("customers",)
    ) -> AsyncIterator[None]:
        """Look random customers up until the block ends; a tenth of the keys have no row."""
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for seed in range(callers):
                chosen = random.Random(seed)  # noqa: S311
                call = self._call_until(ended, tables[seed % len(tables)], chosen)
                tasks.create_task(call)
            yield
            ended.set()

    async def wait_for_answers(self, count: int) -> None:
        """Wait for more answers of the load."""
        await self._wait(lambda after: len(after) >= count)

    async def wait_for_each(self, tables: Sequence[str], count: int) -> None:
        """Wait for more complete answers of the load in each table."""
        wanted = {table: self.complete[table] + count for table in tables}
        await self._wait(lambda _: all(self.complete[each] >= wanted[each] for each in wanted))

    async def wait_for_success(self) -> None:
        """Wait for a later lookup of the load that is complete."""
        await self._wait(lambda after: any(each.is_complete for each in after))

    async def wait_for_failure(self) -> None:
        """Wait for a later lookup of the load that is not complete."""
        await self._wait(lambda after: not all(each.is_complete for each in after))

    def faults(self) -> list[str]:
        """The wrong answers of the load."""
        return [fault for answer in self.answers for fault in answer.faults()]

    def codes(self) -> set[str]:
        """The error codes of the load."""
        return {code for answer in self.answers for code in answer.codes}

    async def _wait(self, is_enough: Callable[[Sequence[Answer]], bool]) -> None:
        begin = len(self.answers)
        async with asyncio.timeout(PATIENCE_S), self._arrived:
            await self._arrived.wait_for(lambda: is_enough(self.answers[begin:]))

    async def _call_until(self, ended: asyncio.Event, table: str, chosen: random.Random) -> None:
        while not ended.is_set():
            keys = [chosen.randint(1, ROWS * 10 // 9) for _ in range(KEYS)]
            answer = await self.look_up(table, keys)
            async with self._arrived:
                self.answers.append(answer)
                self.complete[table] += answer.is_complete
                self._arrived.notify_all()
            await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def callers_of(folder: Path, *, timeout_ms: int = 5_000) -> AsyncIterator[Callers]:
    """Callers of the sidecar whose socket is in the folder."""
    connector = aiohttp.UnixConnector(str(folder / "sidelook.sock"), limit=CONNECTIONS)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Callers(session, timeout_ms)
