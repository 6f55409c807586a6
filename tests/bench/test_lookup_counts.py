"""Whether the clients of a benchmark got what they came for."""

import pytest

from bench.memory import LookupCounts, ended_clients, unfinished_clients

METRICS = """\
# TYPE sidelook_lookups counter
sidelook_lookups_total{dimension="scans",outcome="hit"} 30
sidelook_lookups_total{dimension="scans",outcome="fetched"} 12
sidelook_lookups_total{dimension="scans",outcome="missing"} 500
sidelook_lookups_total{dimension="scans",outcome="timeout"} 3
sidelook_lookups_total{dimension="scans",outcome="error"} 2
sidelook_lookups_total{dimension="others",outcome="hit"} 7000
# TYPE sidelook_channels gauge
sidelook_channels{dimension="scans",channel_state="active"} 6
sidelook_channels{dimension="scans",channel_state="idle"} 2
"""


def test_counts_are_those_of_the_dimension() -> None:
    """Rows from cache or store count as rows, timeouts and errors as failures, channels as one."""
    counts = LookupCounts.of(METRICS, "scans")

    assert counts == LookupCounts(with_row=42, failed=5, channels=8)
    assert LookupCounts.of("", "scans") == LookupCounts(0, 0)


def test_difference_leaves_out_what_was_before() -> None:
    """Counters go on from phase to phase; channels are those of now."""
    earlier, now = LookupCounts(40, 5, channels=9), LookupCounts(42, 6, channels=8)

    assert now.since(earlier) == LookupCounts(2, 1, channels=8)


@pytest.mark.parametrize(
    ("counts", "faults"),
    [
        (LookupCounts(1_000, 1_000), []),
        (LookupCounts(999, 0), ["the clients got 999 rows only, not 1,000"]),
        (LookupCounts(1_000, 1_001), ["1,001 lookups failed, 1,000 ended with a row"]),
        (
            LookupCounts(0, 2_000),
            [
                "the clients got 0 rows only, not 1,000",
                "2,000 lookups failed, 0 ended with a row",
            ],
        ),
    ],
)
def test_rows_must_be_enough_and_the_majority(counts: LookupCounts, faults: list[str]) -> None:
    """Clients that get few rows, or mostly failures, are a fault."""
    found = counts.faults(fewest_rows=1_000)

    assert found == faults


def test_client_that_ended_is_a_fault() -> None:
    """One that asks without end has no reason to end, with whatever code."""
    assert ended_clients([None, None]) == []
    assert ended_clients([None, 1, 0, 1]) == ["3 of 4 clients ended: [1, 0]"]


def test_client_that_did_not_finish_is_a_fault() -> None:
    """One that comes to an end does so in time and with code 0."""
    assert unfinished_clients([0, 0]) == []
    found = unfinished_clients([0, None, -9, None])
    assert found == ["3 of 4 clients did not finish: [None, -9]"]
