"""What a database that does not answer leaves behind in the process: nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import BatchSettings, CacheMode, CacheSettings, DimensionSettings
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.settings import PostgresSettings
from service.engine.dimension import Dimension
from tests.grace import GRACE_S
from tests.integration.fault_proxy import FaultProxy
from tests.integration.protection.customers import put_customers
from tools.processes.postgres_server import Database, PostgresServer

POOL = 4  # connections
CALLERS = 50
PATIENCE_S = 20.0
TIMEOUT_S = 0.3
SETTINGS = DimensionSettings(
    "customers",
    cache=CacheSettings(mode=CacheMode.NONE),
    batch=BatchSettings(max_in_flight=POOL),
    timeout_s=TIMEOUT_S,
)


@asynccontextmanager
async def working(proxy: FaultProxy, database: Database) -> AsyncIterator[Dimension]:
    """The customers behind the network, in this process."""
    put_customers(database)
    dsn = proxy.dsn(database.name)
    reached = PostgresSettings(dsn, "customers", ("id",), max_connections=POOL)
    async with PostgresBackend(reached) as backend, asyncio.TaskGroup() as tasks:
        dimension = Dimension(SETTINGS, backend)
        task = tasks.create_task(dimension.run())
        await dimension.wait_until_described(PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S):
            while await ask(dimension) != {Outcome.FETCHED}:
                pass  # else a late reply might be taken for one that came through the hole
        yield dimension
        task.cancel()


async def test_black_hole_leaves_no_task(
    postgres_server: PostgresServer, database: Database
) -> None:
    """After it the process has no task that it had not before, and lookups succeed."""
    async with FaultProxy(postgres_server.socket_path) as proxy, working(proxy, database) as asked:
        before = tasks_of_ours()

        proxy.hold()
        while_held = {outcome for _ in range(5) for outcome in await ask(asked)}
        proxy.release()

        async with asyncio.timeout(PATIENCE_S):
            # The connections of before end one after the other, in tasks of their own.
            while await ask(asked) != {Outcome.FETCHED} or not tasks_of_ours() <= before:
                pass
    assert while_held <= {Outcome.TIMEOUT, Outcome.ERROR}


async def ask(dimension: Dimension) -> set[Outcome]:
    """What became of the lookups of many callers, each for a key of its own."""
    lookups = (
        dimension.lookup(typed(key), columns=None, timeout_s=TIMEOUT_S)
        for key in range(1, CALLERS + 1)
    )
    async with asyncio.timeout(TIMEOUT_S + GRACE_S):
        answers = await asyncio.gather(*lookups)
    return {Outcome(answer.outcomes[0]) for (answer,) in answers}


def typed(key: int) -> TypedKeys:
    """A lookup of one customer."""
    columns = pa.record_batch({"id": pa.array([key], pa.int64())})
    return TypedKeys(columns, np.array([], np.int32), {})


def tasks_of_ours() -> Counter[str]:
    """How often each coroutine runs as a task; the network of the test is not counted."""
    names = [str(task.get_coro()).split()[2] for task in asyncio.all_tasks()]
    return Counter(name for name in names if not name.startswith(FaultProxy.__name__))
