"""The report of an empty cache."""

from bench.cold_section import Cold, Queries, cold_section
from bench.rounds import Timing

COLD = Cold(
    keys=1_000,
    sidelook=[Timing("sidelook ordered", (4.0,)), Timing("sidelook unordered", (2.0,))],
    raw=[Timing("asyncpg: a", (3.0,)), Timing("asyncpg: b", (1.0, 2.0, 1.0))],
    zipf={"sidelook ordered": Queries(queries=12, distinct_keys=5_000, events=90, seconds=3.0)},
    transactions=15,
)


def test_best_loop_is_the_measure() -> None:
    """Sidelook is held against the fastest of asyncpg's ways, by their medians."""
    section = cold_section(COLD)

    assert [(bar.figure, bar.is_met) for bar in section.bars[:2]] == [(0.25, False), (0.5, False)]
    assert [row[2] for row in section.tables[0].rows] == ["0.250", "0.500", "0.333", "1.000"]


def test_queries_are_held_against_the_fewest() -> None:
    """12 queries for 5,000 keys are 1.2 times the 10 that full ones would be."""
    section = cold_section(COLD)

    bar = section.bars[-1]
    assert (bar.figure, bar.limit, bar.is_at_least, bar.is_met) == (1.2, 1.3, False, True)
    assert section.tables[1].rows == [
        ["sidelook ordered", "12", "5,000", "1.200", "30"],
        ["PostgreSQL counts, transactions", "15", "", "", ""],
    ]
