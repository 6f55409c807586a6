"""Modelled database: connections with a limit, processors that queries share, and outages.

Knows neither keys nor rows. All times are those of the running event loop.
"""

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.freshness.server_identity import ServerEpoch

_EQUAL = 1e-9  # seconds of work that count as none


@dataclass(frozen=True, slots=True)
class DatabaseModel:
    """Costs and limits of the server; `_cpu_s` are seconds of one processor."""

    cores: int = 8
    max_connections: int = 97  # PostgreSQL's default of 100, without 3 for superusers
    pooler_connections: int | None = None  # of a PgBouncer before it, which takes any client
    round_trip_s: float = 0.0005
    connect_cpu_s: float = 0.003  # a new process and the login
    refusal_cpu_s: float = 0.001  # a process that ends before the login
    query_cpu_s: float = 0.0003
    key_cpu_s: float = 0.000_003_5
    cold_factor: float = 5.0  # of the time per key after a failover, falling to 1
    cold_s: float = 30.0
    load_row_cpu_s: float = 0.000_002

    def part(self, divisor: int) -> "DatabaseModel":
        """The same server for a fraction of the fleet: fewer processors and connections."""
        pooler = self.pooler_connections
        return replace(
            self,
            cores=self.cores // divisor,
            max_connections=self.max_connections // divisor,
            pooler_connections=None if pooler is None else pooler // divisor,
        )


@dataclass(slots=True)
class DatabaseLog:
    """What the server saw, in bins of one second by its start."""

    queries: Counter[int] = field(default_factory=Counter)
    keys: Counter[int] = field(default_factory=Counter)
    connects: Counter[int] = field(default_factory=Counter)  # attempts, refused ones included
    refused: Counter[int] = field(default_factory=Counter)  # beyond the limit of connections
    busy_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))  # all processors
    latencies_s: list[tuple[float, float]] = field(default_factory=list)  # (end, seconds)
    connections: list[tuple[float, int]] = field(default_factory=list)  # (time, number)


class Connection:
    """One connection of a client; broken after an outage."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.is_open = True


class Processors:
    """Processor sharing: n jobs on c cores run at min(1, c / n) of the speed each."""

    def __init__(self, cores: int, log: DatabaseLog) -> None:
        self._cores = cores
        self._log = log
        self._progress_s = 0.0  # work that a job present since the start would have done
        self._updated_at = 0.0
        self._jobs: list[tuple[float, int, asyncio.Future[None]]] = []  # a heap by their end
        self._active = 0
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    async def work(self, cpu_s: float) -> None:
        """Do this much work among all jobs; raises the error of `fail`."""
        self._advance()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._jobs, (self._progress_s + cpu_s, next(self._numbers), done))
        self._active += 1
        self._schedule()
        try:
            await done
        except asyncio.CancelledError:
            if done.cancelled():  # not taken from the heap yet
                self._advance()
                self._active -= 1
                self._schedule()
            raise

    def fail(self, error: BackendError) -> None:
        """End all jobs with this error."""
        self._advance()
        for _, _, done in self._jobs:
            if not done.done():
                done.set_exception(error)
        self._jobs, self._active = [], 0
        self._schedule()

    def _advance(self) -> None:
        now = asyncio.get_running_loop().time()
        at = self._updated_at
        while at < now:  # by seconds, for the statistics
            end = min(now, float(int(at) + 1))
            self._log.busy_s[int(at)] += (end - at) * min(self._active, self._cores)
            at = end
        self._progress_s += (now - self._updated_at) * self._speed
        self._updated_at = now

    @property
    def _speed(self) -> float:
        return min(1.0, self._cores / max(self._active, 1))

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._jobs and self._jobs[0][2].done():  # cancelled ones
            heapq.heappop(self._jobs)
        if self._jobs:
            seconds = max(0.0, self._jobs[0][0] - self._progress_s) / self._speed
            self._timer = asyncio.get_running_loop().call_later(seconds, self._finish)

    def _finish(self) -> None:
        self._timer = None
        self._advance()
        while self._jobs and self._jobs[0][0] <= self._progress_s + _EQUAL:
            _, _, done = heapq.heappop(self._jobs)
            if not done.done():
                done.set_result(None)
                self._active -= 1
        self._schedule()


class Database:
    """The server, or two of which one takes over after `fail_over`."""

    def __init__(self, model: DatabaseModel) -> None:
        self.model = model
        self.log = DatabaseLog()
        self.is_down = False
        self.server = ServerEpoch()  # another one after a failover
        self.open = 0
        self._epoch = 0
        self._up_since = float("-inf")  # of the server after a failover
        self._processors = Processors(model.cores, self.log)
        # Connections of the pooler to the server, for which queries wait in their order.
        self._pooler = asyncio.Semaphore(model.pooler_connections or 1)

    async def connect(self) -> Connection:
        """Connect; raises `backend_unavailable` during an outage, and above the limit."""
        model, second = self.model, self._second()
        self.log.connects[second] += 1
        await asyncio.sleep(model.round_trip_s)
        if self.is_down and model.pooler_connections is None:
            raise BackendError(ErrorCode.BACKEND_UNAVAILABLE, "connection refused")
        if model.pooler_connections is not None:
            return Connection(0)  # the pooler survives
        if self.open >= model.max_connections:
            self.log.refused[second] += 1
            await self._processors.work(model.refusal_cpu_s)
            raise BackendError(ErrorCode.BACKEND_UNAVAILABLE, "too many connections")
        connection = Connection(self._epoch)
        self._count(1)
        try:
            await self._processors.work(model.connect_cpu_s)
        except BaseException:
            self.close(connection)
            raise
        return connection

    def close(self, connection: Connection) -> None:
        """Close a connection; a no-op for one that an outage broke."""
        if connection.is_open and connection.epoch == self._epoch and not self._is_pooled:
            self._count(-1)
        connection.is_open = False

    async def query(self, connection: Connection, keys: int) -> ServerEpoch:
        """Answer a query for this many keys; returns the server.

        Raises `connection_lost` if an outage broke the connection.
        """
        model, began_at = self.model, asyncio.get_running_loop().time()
        await asyncio.sleep(model.round_trip_s)
        if not self._is_pooled and connection.epoch != self._epoch:
            raise BackendError(ErrorCode.CONNECTION_LOST, "the connection was lost")
        async with self._server_connection():
            self.log.queries[self._second()] += 1
            self.log.keys[self._second()] += keys
            await self._processors.work(model.query_cpu_s + keys * self._key_cpu_s())
        now = asyncio.get_running_loop().time()
        self.log.latencies_s.append((now, now - began_at))
        return self.server

    async def scan(self, connection: Connection, rows: int) -> None:
        """Read a part of the table; raises as `query`."""
        if connection.epoch != self._epoch:
            raise BackendError(ErrorCode.CONNECTION_LOST, "the connection was lost")
        await self._processors.work(rows * self.model.load_row_cpu_s)

    def go_down(self) -> None:
        """Break all connections, and refuse new ones until `come_back`."""
        self.is_down = True
        self._epoch += 1
        if not self._is_pooled:
            self._count(-self.open)
        self._processors.fail(BackendError(ErrorCode.CONNECTION_LOST, "the connection was lost"))

    def come_back(self) -> None:
        """Take connections again, as another server with cold buffers."""
        self.is_down = False
        self.server = ServerEpoch(self.server.number + 1)
        self._up_since = asyncio.get_running_loop().time()

    @property
    def _is_pooled(self) -> bool:
        return self.model.pooler_connections is not None

    @asynccontextmanager
    async def _server_connection(self) -> AsyncIterator[None]:
        """A connection from the pooler to the server; without a pooler, the client's own."""
        if not self._is_pooled:
            yield
            return
        async with self._pooler:
            self._count(1)
            try:
                if self.is_down:
                    raise BackendError(ErrorCode.CONNECTION_LOST, "the connection was lost")
                yield
            finally:
                self._count(-1)

    def _key_cpu_s(self) -> float:
        model = self.model
        age_s = asyncio.get_running_loop().time() - self._up_since
        left = max(0.0, 1 - age_s / model.cold_s)
        return model.key_cpu_s * (1 + (model.cold_factor - 1) * left)

    def _second(self) -> int:
        return int(asyncio.get_running_loop().time())

    def _count(self, change: int) -> None:
        self.open += change
        self.log.connections.append((asyncio.get_running_loop().time(), self.open))
