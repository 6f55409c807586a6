"""Fetching rows from PostgreSQL by asyncpg alone: what any lookup over it costs at the least.

One process, a few connections, the next batch for whoever is free; nothing is done with the rows.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import asyncpg
import uvloop

QUERIES = {
    "ANY": "SELECT id, name, segment, tier FROM customers WHERE id = ANY($1)",
    "unnest": """SELECT c.id, c.name, c.segment, c.tier
        FROM unnest($1::bigint[]) AS k (id) CROSS JOIN LATERAL
        (SELECT * FROM customers WHERE customers.id = k.id OFFSET 0) AS c""",
}


@dataclass(frozen=True, slots=True)
class RawFetch:
    """One way to do it."""

    query: str  # of QUERIES
    batch_keys: int
    connections: int

    def __str__(self) -> str:
        """How it is told."""
        return f"{self.query}, {self.batch_keys:,} keys, {self.connections} connections"

    @contextmanager
    def fetching(self, dsn: str, keys: Sequence[int]) -> Iterator[Callable[[], int]]:
        """A function that fetches the rows of all keys, and says how many there were.

        It connects and makes batches before, as a service that has run for a while has done.
        """
        batches = [
            keys[first : first + self.batch_keys] for first in range(0, len(keys), self.batch_keys)
        ]
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            opened = runner.run(_connected(dsn, self.connections))
            yield lambda: runner.run(_fetch(opened, QUERIES[self.query], batches))
            runner.run(_closed(opened))


WAYS = [
    RawFetch(query, batch_keys, connections)
    for query, batch_keys, connections in product(QUERIES, (1_000, 5_000, 10_000), (2, 4, 8))
]

_Connections = list["asyncpg.Connection[asyncpg.Record]"]


async def _connected(dsn: str, connections: int) -> _Connections:
    return [await asyncpg.connect(dsn) for _ in range(connections)]


async def _closed(connections: _Connections) -> None:
    for each in connections:
        await each.close()


async def _fetch(connections: _Connections, query: str, batches: Sequence[Sequence[int]]) -> int:
    left = iter(batches)  # all take from it

    async def rows_of(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
        return sum([len(await connection.fetch(query, batch)) for batch in left])

    return sum(await asyncio.gather(*map(rows_of, connections)))
