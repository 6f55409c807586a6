"""A sidecar's status as tables."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from lookup_core.freshness.feed_health import FeedState
from lookup_core.statistics import FeedStatistics, LoadStatistics, RefreshStatistics
from service.commands.status_tables import (
    caches_table,
    channels_table,
    errors_table,
    keys_table,
    stores_table,
    summary_line,
)
from service.http.routes.dimensions import freshness
from tests.service.commands.status_answer import CHANNEL, DIMENSION, ERROR, STATUS


def cells(table: Table) -> dict[str, list[str]]:
    """What stands below each heading."""
    return {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}


def test_process_is_one_line() -> None:
    """Version, age, memory and event loop lag; memory that is not known is said to be so."""
    told = "sidelook 1.2, up for 1 min 30 s; memory {}, limits.memory 512 MiB; event loop lag "

    assert summary_line(STATUS) == f"{told.format('1.0 MiB')}2 ms"
    unknown = STATUS | {"memory": {"resident_bytes": None, "limit_bytes": 2**29}}
    assert summary_line(unknown) == f"{told.format('unknown')}2 ms"


def test_keys_are_told_by_outcome() -> None:
    """Each outcome that there was has a column; a stale row is a hit; without keys is no ratio."""
    silent = DIMENSION | {"name": "b", "lookups": {"hit": 0, "missing": 0}}

    assert cells(keys_table([DIMENSION, silent])) == {
        "dimension": ["airports", "b"],
        "keys": ["9", "0"],
        "hit ratio": ["66.7 %", ""],
        "hit": ["4", "0"],
        "stale": ["2", "0"],
        "missing": ["3", "0"],
    }


def test_stores_have_their_figures() -> None:
    """What was asked of them, and what is asked now."""
    assert cells(stores_table([DIMENSION])) == {
        "dimension": ["airports"],
        "breaker": ["closed"],
        "queries": ["3"],
        "keys fetched": ["4,000"],
        "in flight": ["1 of 8"],
        "queued keys": ["5"],
        "unanswered keys": ["7"],
    }


def test_caches_have_their_figures() -> None:
    """What is held, within which bound, and what follows the table."""
    assert cells(caches_table([DIMENSION])) == {
        "dimension": ["airports"],
        "mode": ["partial"],
        "refresh": ["feed live"],
        "entries": ["1,234"],
        "bytes": ["1.0 MiB of 256 MiB"],
    }


@pytest.mark.parametrize(
    ("refresh", "told"),
    [
        (RefreshStatistics(), ""),
        (RefreshStatistics(feed=FeedStatistics(FeedState.LIVE)), "feed live"),
        (RefreshStatistics(load=LoadStatistics(is_whole=True)), "table whole"),
        (
            RefreshStatistics(load=LoadStatistics(is_loading=True, rows=1234)),
            "table not whole, 1,234 rows read",
        ),
    ],
)
def test_refreshes_are_told_in_words(refresh: RefreshStatistics, told: str) -> None:
    """As the sidecar tells them: is the feed heard, is the table whole, how far is its load."""
    table = caches_table([DIMENSION | {"freshness": freshness(refresh)}])

    assert cells(table)["refresh"] == [told]


@pytest.mark.parametrize("make", [keys_table, stores_table, caches_table, errors_table])
def test_small_terminal_cuts_no_name(make: Callable[[list[Any]], Table]) -> None:
    """At 80 columns a long name is folded, and no figure is cut."""
    console = Console(width=80, record=True, file=io.StringIO())

    console.print(make([DIMENSION | {"name": "x" * 200, "recent_errors": [ERROR]}]))

    printed = console.export_text()
    assert (printed.count("x"), "…" in printed) == (200, False)


def test_latest_errors_come_first() -> None:
    """Those of the last ten minutes, of all dimensions; older ones are left out."""
    other = ERROR | {"code": "timeout", "last_ago_s": 1.0, "keys": 1, "queries": 0}
    old = ERROR | {"last_ago_s": 601.0}
    both = [
        DIMENSION | {"recent_errors": [ERROR, old]},
        DIMENSION | {"name": "b", "recent_errors": [other]},
    ]

    assert cells(errors_table(both)) == {
        "dimension": ["b", "airports"],
        "code": ["timeout", "backend_unavailable"],
        "keys": ["1", "1,234"],
        "queries": ["0", "2"],
        "last": ["now", "3 s ago"],
        "detail": ["no connection", "no connection"],
    }


def test_channels_are_sorted_and_named() -> None:
    """By dimension and task; a client that does not say who it is has its numbers."""
    nameless = CHANNEL | {"dimension": "a", "origin": "", "is_idle": True, "watermark_ms": None}

    assert cells(channels_table([CHANNEL, nameless], 100.0)) == {
        "task": ["connection 1, channel 2", CHANNEL["origin"]],
        "dimension": ["a", "airports"],
        "state": ["idle", "active"],
        "in flight": ["300", "300"],
        "backlog": ["40", "40"],
        "unused credit": ["1,200 of 1,500", "1,200 of 1,500"],
        "watermark": ["none yet", "1970-01-01 00:01:00Z, 40.0 s behind"],
    }
