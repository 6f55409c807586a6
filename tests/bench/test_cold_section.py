"""The report of an empty cache."""

from dataclasses import replace

from bench.cold_section import SPENDERS, Cold, Queries, cold_section
from bench.timing import Timing

OURS = dict(zip(SPENDERS, (0.8, 0.4, 1.25, 2.25, 0.0), strict=True))
LOOP = dict(zip(SPENDERS, (0.0, 0.0, 0.0, 1.5, 0.75), strict=True))
COLD = Cold(
    keys=1_000,
    sidelook=[Timing("sidelook ordered", (4.0,)), Timing("sidelook unordered", (2.0,))],
    raw=[Timing("asyncpg: a", (3.0,)), Timing("asyncpg: b", (1.0, 2.0, 1.0))],
    spent={"sidelook ordered": OURS, "sidelook unordered": OURS, "asyncpg: b": LOOP},
    zipf={"sidelook ordered": Queries(queries=12, distinct_keys=5_000, events=90, seconds=3.0)},
    transactions=15,
)


def test_best_loop_is_the_measure() -> None:
    """Sidelook is held against the fastest of asyncpg's ways, by their medians."""
    section = cold_section(COLD)

    assert [(bar.figure, bar.is_met) for bar in section.bars[:2]] == [(0.25, False), (0.5, False)]
    assert [row[2] for row in section.tables[0].rows] == ["0.250", "0.500", "0.333", "1.000"]


def test_bar_says_where_the_time_goes() -> None:
    """A rate that falls short is explained by the processor time of both sides in this run."""
    section = cold_section(COLD)

    assert section.bars[0].shortfall == (
        "the job takes 4.70 processor seconds where the loop takes 2.25, on the same cores: Spark"
        " with its workers 1.20, PostgreSQL 2.25, the sidecar 1.25"
    )
    headings = ["contender", "JVM", "Python workers", "sidecar", "PostgreSQL", "this process"]
    assert section.tables[1].headings == [*headings, "all"]
    assert section.tables[1].rows[2] == [
        "asyncpg: b", "0.00", "0.00", "0.00", "1.50", "0.75", "2.25"
    ]  # fmt: skip


def test_database_without_processor_time_is_a_fault() -> None:
    """Where each key was fetched, PostgreSQL has worked; if none is seen, another one was."""
    unseen = dict(COLD.spent) | {"sidelook ordered": OURS | {"PostgreSQL": 0.0}}

    section = cold_section(replace(COLD, spent=unseen))

    assert section.faults == ["sidelook ordered: no processor time of PostgreSQL was seen"]
    assert cold_section(COLD).faults == []


def test_queries_are_held_against_the_fewest() -> None:
    """12 queries for 5,000 keys are 1.2 times the 10 that full ones would be."""
    section = cold_section(COLD)

    bar = section.bars[-1]
    assert (bar.figure, bar.limit, bar.is_at_least, bar.is_met) == (1.2, 1.3, False, True)
    assert section.tables[2].rows == [
        ["sidelook ordered", "12", "5,000", "1.200", "30"],
        ["both, transactions in PostgreSQL", "15", "", "", ""],
    ]
