"""The report of `cold`: distinct keys per second, queries, and the bars they are held against.

Nothing runs in here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.section import Bar, FigureTable, Section
from bench.sidecar_under_test import MAX_KEYS
from bench.timing import KINDS, Seconds, Timing

THIS_PROCESS = "this process"  # where asyncpg's loop runs
SPENDERS = (*KINDS, THIS_PROCESS)


@dataclass(frozen=True, slots=True)
class Queries:
    """What events with Zipf keys asked of the database while the cache was empty."""

    queries: int  # as the sidecar counts
    distinct_keys: int
    events: int
    seconds: float

    @property
    def to_fewest(self) -> float:
        """How many times the fewest that could be, if each one were full."""
        return self.queries / (self.distinct_keys / MAX_KEYS)


@dataclass(frozen=True, slots=True)
class Cold:
    """All that was measured."""

    keys: int  # distinct ones
    sidelook: Sequence[Timing]
    raw: Sequence[Timing]  # the best ways of asyncpg
    spent: Mapping[str, Seconds]  # {contender: processor seconds of one round, by SPENDERS}
    zipf: Mapping[str, Queries]  # {contender: what it asked}
    transactions: int  # of all Zipf rounds together, as PostgreSQL counts

    @property
    def best_raw(self) -> Timing:
        """The fastest way without Sidelook."""
        return min(self.raw, key=lambda timing: timing.median_s)


def cold_section(cold: Cold, *, remarks: Sequence[str] = (), faults: Sequence[str] = ()) -> Section:
    """What an empty cache costs."""
    return Section(
        name="cold",
        title="An empty cache",
        remarks=remarks,
        tables=[_rates(cold), _spent(cold), _queries(cold)],
        bars=[*_rate_bars(cold), *_query_bars(cold)],
        faults=[*faults, *_unseen(cold)],
    )


def _unseen(cold: Cold) -> list[str]:
    """Each round fetches every key: no processor time means that another server was watched."""
    return [
        f"{name}: no processor time of PostgreSQL was seen"
        for name, spent in cold.spent.items()
        if spent["PostgreSQL"] <= 0.0
    ]


def _rates(cold: Cold) -> FigureTable:
    rows = [
        [
            timing.name,
            f"{cold.keys / timing.median_s:,.0f}",
            f"{_to_raw(cold, timing):.3f}",
            " ".join(f"{seconds:.2f}" for seconds in timing.seconds),
        ]
        for timing in (*cold.sidelook, *cold.raw)
    ]
    headings = ["contender", "keys/s", "to the best asyncpg loop", "seconds, each round"]
    return FigureTable(f"cold, each of {cold.keys:,} keys once, in random order", headings, rows)


def _spent(cold: Cold) -> FigureTable:
    rows = [
        [name, *(f"{spent[kind]:.2f}" for kind in SPENDERS), f"{sum(spent.values()):.2f}"]
        for name, spent in cold.spent.items()
    ]
    return FigureTable("cold, processor seconds", ["contender", *SPENDERS, "all"], rows)


def _queries(cold: Cold) -> FigureTable:
    rows = [
        [
            name,
            f"{found.queries:,}",
            f"{found.distinct_keys:,}",
            f"{found.to_fewest:.3f}",
            f"{found.events / found.seconds:,.0f}",
        ]
        for name, found in cold.zipf.items()
    ]
    rows.append(["both, transactions in PostgreSQL", f"{cold.transactions:,}", "", "", ""])
    headings = ["contender", "queries", "distinct keys", "to the fewest", "records/s"]
    return FigureTable(f"cold, Zipf keys, at most {MAX_KEYS:,} keys a query", headings, rows)


def _rate_bars(cold: Cold) -> list[Bar]:
    return [
        Bar(
            f"cold, uniform keys, {_mode(timing.name)}: distinct keys per second against the best"
            " asyncpg batch loop",
            _to_raw(cold, timing),
            0.70,
            shortfall=_shortfall(cold, timing.name),
        )
        for timing in cold.sidelook
    ]


def _query_bars(cold: Cold) -> list[Bar]:
    return [
        Bar(
            f"cold, Zipf keys, {_mode(name)}: database queries against distinct keys / `max_keys`",
            found.to_fewest,
            1.3,
            is_at_least=False,
        )
        for name, found in cold.zipf.items()
    ]


def _shortfall(cold: Cold, contender: str) -> str:
    ours, raw = cold.spent[contender], cold.spent[cold.best_raw.name]
    return (
        f"the job takes {sum(ours.values()):.2f} processor seconds where the loop takes"
        f" {sum(raw.values()):.2f}, on the same cores: Spark with its workers"
        f" {ours['JVM'] + ours['Python workers']:.2f}, PostgreSQL {ours['PostgreSQL']:.2f}, the"
        f" sidecar {ours['sidecar']:.2f}"
    )


def _mode(contender: str) -> str:
    return contender.removeprefix("sidelook ")


def _to_raw(cold: Cold, timing: Timing) -> float:
    return cold.best_raw.median_s / timing.median_s
