"""Figures of the benchmark: they come from the right runs, and missed targets are reported."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.cold import SPENDERS, Cold, Queries, cold_section
from bench.fairness import p99_ratio
from bench.growth import MeasuredGrowth, growth_report
from bench.growth_cases import CaseFigures, LoadCase, LoadRound, cached_rows, small_growths
from bench.http_cases import HUNDRED, ONE, bare_handler, http_cases
from bench.http_load import Duel
from bench.http_load import section as http_section
from bench.lookup_load import LoadSpan
from bench.memory import LookupCounts, ended_clients, unfinished_clients
from bench.row_bytes import CachedRows
from bench.section import Section, Target, miss_reasons, target_table
from bench.speed import Rate, Rates, differences, speed_section
from bench.timing import KINDS, Timing, time_in_turn
from bench.wrk import WrkFigures

RIGHT = pa.table({"event": [0, 1, 2], "name": ["Ada", None, "Bob"]})
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
SECONDS = {
    "widen": 1.0,
    "sidelook ordered": 1.0,
    "sidelook unordered": 2.0,
    "query per record": 4.0,
    "query per batch": 4.0,
    "dict in the worker": 2.0,
}
WARMING_UP, COUNTED = dict.fromkeys(KINDS, 9.0), dict.fromkeys(KINDS, 0.0) | {"sidecar": 2e-6}
METRICS = """\
sidelook_lookups_total{dimension="scans",outcome="hit"} 30
sidelook_lookups_total{dimension="scans",outcome="fetched"} 12
sidelook_lookups_total{dimension="scans",outcome="missing"} 500
sidelook_lookups_total{dimension="scans",outcome="timeout"} 3
sidelook_lookups_total{dimension="scans",outcome="error"} 2
sidelook_lookups_total{dimension="others",outcome="hit"} 7000
sidelook_channels{dimension="scans",channel_state="active"} 6
sidelook_channels{dimension="scans",channel_state="idle"} 2
"""


@pytest.mark.parametrize(
    ("other", "faults"),
    [
        (pa.concat_tables([RIGHT.slice(2), RIGHT.slice(0, 2)]), []),
        (
            pa.table({"event": [0, 1, 2], "name": ["Ada", None, "Eve"]}),
            ["other differs from widen: name of event 2 is Eve, not Bob"],
        ),
        (
            pa.table({"event": [0, 1, 2], "name": [None, None, "Bob"]}),
            ["other differs from widen: name of event 0 is None, not Ada"],
        ),
        (
            RIGHT.rename_columns(["event", "title"]),
            ["other differs from widen: its columns are {'event': 'int64', 'title': 'string'}"],
        ),
        (RIGHT.slice(1), ["other differs from widen: it has 2 rows, not 3"]),
    ],
)
def test_wrong_outputs_are_found(other: pa.Table, faults: list[str]) -> None:
    """Wrong values, wrong columns and lost rows are found in any order of the rows."""
    assert differences({"widen": RIGHT, "other": other}) == faults


def test_wrong_answers_over_http_are_found(tmp_path: Path) -> None:
    """The rows of each HTTP answer are compared."""
    customers = pa.table({"id": range(10_000), "name": [f"c {n}" for n in range(10_000)]})
    cases = http_cases(customers)
    answers: dict[str, dict[str, Any]] = {}
    for case in cases:
        method, wrong = case.method, [*case.rows[1:], {"name": "wrong"}]
        answers |= {
            f"{method} /{len(case.rows)}/a{case.route}": {"rows": case.rows},
            f"{method} /{len(case.rows)}/b{case.route}": {"rows": wrong},
        }

    with bare_handler(answers, tmp_path) as url:
        faults = [case.fault(f"{url}/{len(case.rows)}/{x}") for case in cases for x in "ab"]

    assert [len(case.rows) for case in cases] == [1, 1, 100]
    assert [fault is not None for fault in faults] == [False, True] * 3


def test_contenders_run_in_turn() -> None:
    """Each round prepares and runs every contender; the warm-up does not count."""
    order: list[str] = []
    runs = {name: partial(order.append, name) for name in ("a", "slow")}

    timings = time_in_turn(
        runs, rounds=2, fewer_rounds={"slow": 1}, before=partial(order.append, "-")
    )

    assert "".join(order).replace("slow", "s") == "-a-s-a-s-a"
    assert [(timing.name, len(timing.seconds)) for timing in timings] == [("a", 2), ("slow", 1)]
    assert Timing("a", (1.0, 9.0, 2.0)).median_s == 2.0


def test_missed_targets_have_a_reason() -> None:
    """A figure at its limit meets the target; a miss is reported in percent and with its reason."""
    least = [Target("rate", 0.85, 0.85, miss_reason="slow"), Target("other rate", 0.6, 0.8)]
    most = [
        Target("bytes", 2.0, 2.0, is_at_least=False),
        Target("more bytes", 3.0, 2.0, is_at_least=False, miss_reason="large"),
    ]
    sections = [Section("a", "A", (), targets=least), Section("b", "B", (), targets=most)]

    assert target_table(sections).rows == [
        ("rate", "≥ 0.85", "0.85", "met"),
        ("other rate", "≥ 0.8", "0.60", "short by 25.0 %"),
        ("bytes", "≤ 2", "2.00", "met"),
        ("more bytes", "≤ 2", "3.00", "short by 50.0 %"),
    ]
    assert list(miss_reasons(sections)) == [("more bytes", "large")]


def test_clients_that_fail_are_a_fault() -> None:
    """Only lookups of the dimension in this phase count; most of them must return a row."""
    counts = LookupCounts.of(METRICS, "scans")

    assert counts == LookupCounts(with_row=42, failed=5, channels=8)
    assert counts.since(LookupCounts(40, 5, channels=9)) == LookupCounts(2, 0, channels=8)
    assert LookupCounts(1_000, 1_000).faults(fewest_rows=1_000) == []
    assert LookupCounts(0, 2_000).faults(fewest_rows=1_000) == [
        "the clients got only 0 rows, not 1,000",
        "2,000 lookups failed, 0 returned a row",
    ]
    assert ended_clients([None, None]) == unfinished_clients([0, 0]) == []
    assert ended_clients([None, 1, 0, 1]) == ["3 of 4 clients ended: [1, 0]"]
    assert unfinished_clients([0, None, -9, None]) == ["3 of 4 clients did not finish: [None, -9]"]


def test_load_is_measured_over_all_processes() -> None:
    """A round lasts from the first start to the last end; figures are medians of rounds."""

    def span(begun_s: float, ended_s: float, hits: int = 100) -> LoadSpan:
        return LoadSpan(begun_s, ended_s, cpu_s=1e-4, keys=100, hits=hits, row_bytes=400)

    together = LoadRound((span(1.0, 3.0), span(1.5, 5.0, hits=90)), sidecar_cpu_s=0.0)
    rounds = [LoadRound((span(0.0, seconds),), sidecar_cpu_s=2e-4) for seconds in (1.0, 9.0, 2.0)]
    figures = CaseFigures(LoadCase("one", 1, ()), rounds)

    assert (together.seconds, together.keys, together.uncached_keys) == (4.0, 200, 10)
    assert (figures.lookups_per_second, figures.bytes_per_second) == (50.0, 200.0)
    assert (figures.client_ns, figures.sidecar_ns) == (1000.0, 2000.0)


def test_ratios_have_the_right_base() -> None:
    """Bytes are per kept row; a p99 is compared with the p99 alone."""
    kept = CachedRows(
        put_rows=1000,
        kept_rows=100,
        arrow_row_bytes=40.0,
        cache_bytes=8000,
        process_bytes=0,
        used_bytes=0,
    )
    latencies = {"alone": [0.001] * 100, "disturbed": [0.003] * 100}

    assert kept.ratio == 2.0
    assert p99_ratio(latencies, "disturbed") == 3.0


def test_http_is_compared_by_medians() -> None:
    """Only the case of one key has targets: its rate and its p99 against a bare handler."""

    def run(requests: int, p99_us: int) -> WrkFigures:
        return WrkFigures(requests, 1_000_000, p99_us=p99_us, refused=0, broken=0)

    one = Duel(ONE, [run(80, 30), run(10, 90), run(90, 20)], [run(100, 10)] * 3)
    many = Duel(HUNDRED, [run(1, 9)], [run(5, 3)])

    found = http_section([one, many], faults=[])

    assert [(each.figure, each.limit, each.is_met) for each in found.targets] == [
        (0.8, 0.7, True),
        (3.0, 1.5, False),
    ]
    assert found.tables[0].rows == [
        [ONE, "80", "100", "0.80", "0.03", "0.01", "3.00"],
        [HUNDRED, "1", "5", "0.20", "0.01", "0.00", "3.00"],
    ]


def test_cold_rate_is_compared_with_the_best_loop() -> None:
    """The fastest asyncpg loop is the base; the reason of a miss lists the processor time."""
    section = cold_section(COLD)

    ordered, unordered, queries = section.targets
    assert (ordered.figure, ordered.is_met) == (0.25, False)
    assert (unordered.figure, unordered.is_met) == (0.5, False)
    assert ordered.miss_reason == (
        "the job takes 4.70 processor seconds and the loop 2.25, on the same cores: Spark"
        " with its workers 1.20, PostgreSQL 2.25, the sidecar 1.25"
    )
    assert (queries.figure, queries.limit, queries.is_at_least) == (1.2, 1.3, False)
    assert section.faults == []


def test_speed_is_a_ratio_of_rates() -> None:
    """Each mode has a target against `widen`; against others the slower mode counts."""
    events = {"query per record": 10}  # the others have 100
    found = {
        name: Rate(Timing(name, (taken,)), events.get(name, 100), [WARMING_UP, COUNTED])
        for name, taken in SECONDS.items()
    }
    rates: Rates = {"zipf": found, "uniform": found}

    section = speed_section(rates)

    ratios = {row[0]: (row[1], row[2]) for row in section.tables[0].rows}
    assert (ratios["widen"], ratios["query per record"]) == (("100", "1.000"), ("2", "0.025"))
    assert section.tables[1].rows[0] == ["widen", "0", "0", "20", "0"]  # ns of a counted round
    assert [(each.figure, each.limit, each.is_met) for each in section.targets] == [
        (1.0, 0.85, True),
        (0.5, 0.85, False),
        (1.0, 0.7, True),
        (0.5, 0.7, False),
        (20.0, 50.0, False),
        (2.0, 2.0, True),
        (1.0, 1.3, False),
        (1.0, 3.0, False),
    ]


@pytest.mark.parametrize("uncached", [0, 1])
def test_growth_is_measured_on_hits(uncached: int) -> None:
    """Many channels are compared with one; keys that the cache did not answer are a fault."""

    def figures(case: LoadCase) -> CaseFigures:
        seconds = 1e-3 + case.x * 1e-6  # a batch of x keys takes 1 ms and 1 µs for each key
        span = LoadSpan(0.0, seconds, seconds / 2, case.x, case.x - uncached, row_bytes=8)
        return CaseFigures(case, [LoadRound((span,), sidecar_cpu_s=seconds)])

    growths = [*small_growths("unix:///s", 10**6), cached_rows("unix:///s", 10**6, largest=10**6)]
    measured = [MeasuredGrowth(each, [figures(case) for case in each.cases]) for each in growths]

    section = growth_report(measured, rounds=5)

    (target,) = section.targets
    assert target.figure == pytest.approx((64 / 1.064e-3) / (1 / 1.001e-3))
    cost = "costs the sidecar 1,000 µs of processor time, and each of its keys 1,000 ns."
    assert section.remarks[2].endswith(cost)
    fault = "1 channels: the cache did not answer 1 keys"
    assert section.faults[:1] == ([fault] if uncached else [])
