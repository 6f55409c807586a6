"""Discrete-event simulation of a fleet, in virtual time; equal seeds give equal runs.

Real: the engine's `Dimension` with its core (cache, flights, batches, breaker, limits, retries),
and the shares of connections. Modelled: database, connection pool, network and Spark.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from lookup_core.protection.connection_shares import ConnectionShares
from lookup_core.settings import DimensionSettings
from lookup_core.statistics import LoadResult
from service.config.settings import Settings
from service.connectors.postgres.connections import IDLE_S
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from service.engine.shared_connections import ConnectionShare
from tools.fleet.database import Database, DatabaseLog, DatabaseModel
from tools.fleet.sidecar import ModelledBackend, ModelledPool, ModelledTable
from tools.fleet.workload import Driver, JobModel, MicroBatch
from tools.virtual_time import run_in_virtual_time

DIMENSION = "customers"
_TABLE_SPLITS = 8
_POLL_S = 0.25


def settings_with(*, connections: int | None = None, **sections: Mapping[str, object]) -> Settings:
    """The configuration of one dimension with default settings, but for these sections."""
    source = {"kind": "postgres", "dsn": "postgresql://db/shop", "table": DIMENSION}
    limits = {} if connections is None else {"database_connections": connections}
    dimension = {"source": source, "key": ["id"], **sections}
    return Settings({"limits": limits, "dimensions": {DIMENSION: dimension}})


@dataclass(frozen=True, slots=True)
class Plan:
    """One run; times are in seconds since the first micro-batch."""

    executors: int
    seconds: float
    weight: int = 1  # executors for which each simulated one stands
    start_s: float = 5.0  # within which the sidecars start, before the first micro-batch
    backlog_s: float = 0.0  # of records in the first micro-batch, beyond its own
    restart: tuple[float, float] | None = None  # of the driver alone: sidecars stay
    outage: tuple[float, float] | None = None  # of the database, which then fails over
    load_rows: int = 0  # of a table in mode full, which is loaded at the start; then no job runs
    database: DatabaseModel = field(default_factory=DatabaseModel)
    job: JobModel = field(default_factory=JobModel)
    settings: Settings = field(default_factory=settings_with)
    seed: int = 1


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What a run has shown; times are as in the plan."""

    plan: Plan
    batches: list[MicroBatch]
    log: DatabaseLog
    began_at: float
    outcomes: int  # of all sidecars, as they count them
    retries: int
    loaded_at: list[float]  # of each sidecar that has loaded its table
    failed_loads: int


def simulate(plan: Plan) -> FleetRun:
    """Run the plan; uses no clock, thread or socket."""
    state = random.getstate()
    random.seed(plan.seed)
    try:
        with _silent_logs():
            return run_in_virtual_time(_run(plan))
    finally:
        random.setstate(state)


@contextmanager
def _silent_logs() -> Iterator[None]:
    former = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    try:
        yield
    finally:
        structlog.configure(**former)


async def _run(plan: Plan) -> FleetRun:
    database = Database(plan.database.part(plan.weight))
    dimensions = [_dimension(plan, database) for _ in range(plan.executors // plan.weight)]
    driver = Driver(plan.job, dimensions, plan.seed)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_start(plan, each)) for each in dimensions]
        await asyncio.sleep(plan.start_s)
        began_at = asyncio.get_running_loop().time()
        if plan.outage is not None:
            tasks.create_task(_fail_over(database, plan.outage))
        loaded_at: list[float] = []
        if plan.load_rows:
            loaded_at = await _wait_for_loads(plan, dimensions, began_at)
        else:
            await _drive(plan, driver, began_at)
        for task in running:
            task.cancel()
    totals = [each.statistics() for each in dimensions]
    loads = [load for each in dimensions if (load := each.load_statistics()) is not None]
    return FleetRun(
        plan=plan,
        batches=driver.batches,
        log=database.log,
        began_at=began_at,
        outcomes=sum(sum(each.outcomes.values()) for each in totals),
        retries=sum(each.retries for each in totals),
        loaded_at=loaded_at,
        failed_loads=sum(load.counts[LoadResult.ERROR] for load in loads),
    )


def _dimension(plan: Plan, database: Database) -> Dimension:
    size = plan.settings.limits.database_connections
    clock = asyncio.get_running_loop().time
    settings: DimensionSettings = plan.settings.dimensions[DIMENSION].engine_settings(DIMENSION)
    backend = ModelledBackend(database, ModelledPool(database, idle_s=IDLE_S))
    sources = RefreshSources()
    if plan.load_rows:
        table = ModelledTable(database, rows=plan.load_rows, splits=_TABLE_SPLITS)
        sources = RefreshSources(table=table)
    share = ConnectionShare(ConnectionShares(size, [DIMENSION]), DIMENSION, clock=clock)
    return Dimension(settings, backend, connections=share, sources=sources, clock=clock)


async def _wait_for_loads(plan: Plan, dimensions: list[Dimension], began_at: float) -> list[float]:
    """The times at which tables were loaded; those of the others are missing."""
    now = asyncio.get_running_loop().time
    waiting, loaded_at = list(dimensions), []
    while waiting and now() < began_at + plan.seconds:
        await asyncio.sleep(_POLL_S)
        loaded = [each for each in waiting if _is_loaded(each)]
        loaded_at += [now() - began_at + plan.start_s] * len(loaded)
        waiting = [each for each in waiting if each not in loaded]
    return loaded_at


async def _start(plan: Plan, dimension: Dimension) -> None:
    await asyncio.sleep(random.random() * plan.start_s)
    await dimension.run()


async def _fail_over(database: Database, outage: tuple[float, float]) -> None:
    begins_s, ends_s = outage
    await asyncio.sleep(begins_s)
    database.go_down()
    await asyncio.sleep(ends_s - begins_s)
    database.come_back()


async def _drive(plan: Plan, driver: Driver, began_at: float) -> None:
    if plan.restart is None:
        await driver.run(began_at + plan.seconds, backlog_s=plan.backlog_s)
        return
    stops_s, starts_s = plan.restart
    await driver.run(began_at + stops_s, backlog_s=plan.backlog_s)
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(max(0.0, began_at + starts_s - now))
    # The last micro-batch is replayed, with the records that came since.
    await driver.run(began_at + plan.seconds, backlog_s=starts_s - stops_s)


def _is_loaded(dimension: Dimension) -> bool:
    load = dimension.load_statistics()
    return load is not None and load.is_whole
