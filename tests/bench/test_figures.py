"""Workload and figures of the benchmark; wrong outputs and missed targets are reported."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.cache_flood import flood_of
from bench.http_cases import bare_handler, http_cases
from bench.memory import LookupCounts, ended_clients, unfinished_clients
from bench.section import Section, Target, miss_reasons, target_table
from bench.speed import Rates, differences, speed_section
from bench.timing import KINDS, Rate, Timing
from bench.wide_records import SELECT, TAKE, WIDEN, WideRates, wide_section, write_events
from bench.workload import KEYS, Workload

MIB = 2**20
RIGHT = pa.table({"event": [0, 1, 2], "name": ["Ada", None, "Bob"]})
SECONDS = {
    "widen": 1.0,
    "sidelook ordered": 1.0,
    "sidelook unordered": 2.0,
    "query per record": 4.0,
    "query per batch": 4.0,
    "dict in the worker": 2.0,
    "identity": 0.8,
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


def test_speed_is_a_ratio_of_rates() -> None:
    """Each mode has targets of its own; against others without a cache the slower mode counts."""
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
        (1.0, 0.95, True),
        (0.8, 0.74, True),
        (20.0, 5.0, False),
        (0.5, 0.95, False),
        (0.4, 0.74, False),
        (20.0, 5.0, False),
        (1.0, 0.9, True),
        (0.8, 0.7, True),
        (20.0, 5.0, False),
        (0.5, 0.9, False),
        (0.4, 0.7, False),
        (20.0, 5.0, False),
        (20.0, 50.0, False),
        (2.0, 2.0, True),
        (1.0, 1.3, False),
        (1.0, 3.0, False),
    ]


def test_wide_records_have_two_references() -> None:
    """All columns are compared with `widen`, two with a plain selection, which is the target."""
    seconds = {"via batch": 4.0, "via udf": 2.0, WIDEN: 4.0, TAKE: 1.25, SELECT: 1.0}
    timings = [Timing(name, (taken,)) for name, taken in seconds.items()]
    rates = [WideRates(50, 100, keeps_all, timings) for keeps_all in (True, False)]

    section = wide_section(rates)

    ratios = [[row[2] for row in table.rows[:2]] for table in section.tables]
    assert ratios == [["1.000", "2.000"], ["0.250", "0.500"]]
    assert [(each.figure, each.limit) for each in section.targets] == [(0.5, 0.85)]
    assert section.targets[0].miss_reason.endswith("reaches 0.80")


def test_wide_records_have_their_width(tmp_path: Path) -> None:
    """Integers, doubles and texts follow the key and the two columns that queries use."""
    write_events(tmp_path / "events.parquet", 100, columns=8, rows=50)

    schema = pq.read_schema(tmp_path / "events.parquet")
    assert schema.names == ["event", "customer_id", "amount", "c0", "c1", "c2", "c3", "c4"]
    assert [str(kind) for kind in schema.types[3:6]] == ["int64", "double", "string"]


def test_events_are_the_same_everywhere(tmp_path: Path) -> None:
    """Two folders get the same events; every event has a row; Zipf keys are skewed."""
    first, second = (Workload(tmp_path / name, 10_000, 1_000) for name in ("a", "b"))
    first.write()
    second.write()

    assert pq.read_table(first.dimension)["id"].to_pylist() == list(range(1_000))
    most = {}
    for keys in KEYS:
        events = pq.read_table(first.events_of(keys))
        found = events["customer_id"].to_numpy()
        assert events == pq.read_table(second.events_of(keys))
        assert (found.min(), found.max() < 1_000) == (0, True)
        most[keys] = np.bincount(found).max()
    assert most["zipf"] > 20 * most["uniform"]
    distinct = pq.read_table(first.distinct_events())["customer_id"].to_pylist()
    assert sorted(distinct) == list(range(1_000)) != distinct


def test_flood_stays_within_its_bound() -> None:
    """A cache that gets many times its size never exceeds its bytes."""
    flood = flood_of(100_000, bound_bytes=MIB)

    assert MIB / 2 < flood.most_cache_bytes <= flood.bound_bytes == MIB
