"""Cases of the page: fleets of four sizes, before servers of different limits."""

from dataclasses import dataclass, field, replace

from service.config.settings import Settings
from tools.fleet.database import DatabaseModel
from tools.fleet.figures import LoadFigures, LookupFigures, Phase, Rates
from tools.fleet.simulation import Plan, settings_with, simulate

COLD_S = 45.0
RESTART = (45.0, 55.0)  # of the driver alone
OUTAGE = (75.0, 105.0)
STREAM_S = 150.0
BACKLOG_S = 40.0  # of a driver that starts again with empty caches
_WARMING_S, _REST_S = 30.0, 120.0  # of the cases with a feed
LOAD_ROWS = 1_000_000
_LOAD_LIMIT_S = 400.0
_SAMPLE = 8  # executors for which a simulated one stands, in the largest fleet


@dataclass(frozen=True, slots=True)
class Case:
    """A fleet before a server."""

    executors: int
    server: str  # for the tables
    database: DatabaseModel
    settings: Settings = field(default_factory=settings_with)

    @property
    def plan(self) -> Plan:
        """A plan without events."""
        return Plan(
            executors=self.executors,
            seconds=STREAM_S,
            weight=_SAMPLE if self.executors > 100 else 1,
            database=self.database,
            settings=self.settings,
        )


DEFAULT = DatabaseModel()
_POOLER = DatabaseModel(pooler_connections=64)
_CAPPED = settings_with(batch={"max_queries_per_second": 2})
STREAMS = [
    Case(1, "97 connections", DEFAULT),
    Case(10, "97 connections", DEFAULT),
    Case(100, "97 connections", DEFAULT),
    Case(100, "500 connections", DatabaseModel(max_connections=500)),
    Case(1000, "4,200 connections", DatabaseModel(max_connections=4200)),
    Case(1000, "PgBouncer, 64", _POOLER),
    Case(1000, "PgBouncer, 64; 2 queries/s", _POOLER, _CAPPED),
]


def _full(executors: int, spread: str, connections: int) -> Case:
    settings = settings_with(cache={"mode": "full", "load_spread": spread})
    server = f"{connections:,} connections"
    return Case(executors, server, DatabaseModel(max_connections=connections), settings)


LOADS = [
    _full(10, "0s", 97),
    _full(100, "0s", 97),
    _full(100, "1m", 97),
    _full(1000, "0s", 5200),
    _full(1000, "5m", 5200),
]
_FED = settings_with(refresh={"listen": {}})
AUDITS = [
    Case(10, "97 connections", DEFAULT, _FED),
    Case(100, "500 connections", DatabaseModel(max_connections=500), _FED),
    Case(1000, "4,200 connections", DatabaseModel(max_connections=4200), _FED),
]


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """The figures of one case, by phase."""

    cold: tuple[LoadFigures, LookupFigures]
    warm_restart: tuple[LoadFigures, LookupFigures]
    empty_restart: tuple[LoadFigures, LookupFigures]
    outage: LookupFigures
    connects_per_s: int  # during the outage
    recovery: tuple[LoadFigures, LookupFigures]
    retries: int


@dataclass(frozen=True, slots=True)
class TableLoadFigures:
    """Loads of full tables at a cold start."""

    connections: int
    refused: int
    failed_loads: int
    loaded: int  # sidecars
    median_s: float
    last_s: float


def stream_figures(case: Case) -> StreamFigures:
    """Run the streams of a case: one with a restart and a failover, and one with a backlog."""
    run = simulate(replace(case.plan, restart=RESTART, outage=OUTAGE))
    cold, restart = Phase(run, 0.0, COLD_S), Phase(run, RESTART[1], OUTAGE[0])
    outage, recovery = Phase(run, *OUTAGE), Phase(run, OUTAGE[1], STREAM_S)
    replayed = simulate(replace(case.plan, seconds=15.0, backlog_s=BACKLOG_S))
    empty = Phase(replayed, 0.0, 15.0)
    return StreamFigures(
        cold=(cold.load(), cold.lookups()),
        warm_restart=(restart.load(), restart.lookups()),
        empty_restart=(empty.load(), empty.lookups()),
        outage=outage.lookups(),
        connects_per_s=outage.connects_per_s(),
        recovery=(recovery.load(), recovery.lookups()),
        retries=run.retries * case.plan.weight,
    )


def load_figures(case: Case) -> TableLoadFigures:
    """Run the first loads of a case in mode full."""
    run = simulate(replace(case.plan, seconds=_LOAD_LIMIT_S, load_rows=LOAD_ROWS))
    load = Phase(run, -run.plan.start_s, _LOAD_LIMIT_S).load()
    times, weight = sorted(run.loaded_at), run.plan.weight
    return TableLoadFigures(
        connections=load.connections,
        refused=load.refused,
        failed_loads=run.failed_loads * weight,
        loaded=len(times) * weight,
        median_s=times[len(times) // 2],
        last_s=times[-1],
    )


def audit_figures(case: Case) -> Rates:
    """Fill the caches of a case with a feed; its audits are all queries of the rest."""
    run = simulate(replace(case.plan, seconds=_WARMING_S, rest_s=_REST_S))
    return Phase(run, _WARMING_S + 1, _WARMING_S + _REST_S).rates()
