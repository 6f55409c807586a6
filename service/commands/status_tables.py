"""What a sidecar says of itself, as a line and tables for people.

For programs there is `--json`, which has all that is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from service.commands.tables import (
    shown,
    shown_ago,
    shown_count,
    shown_share,
    shown_size,
    shown_span,
    shown_watermark,
)

Told = Mapping[str, Any]  # an object of the answer

NO_CHANNELS = "no channels are open: no Spark task looks anything up now"
ANSWERED_BY_CACHE = ("hit", "stale")
ERRORS_SHOWN_S = 600
MOST_ERRORS = 30
NO_ERRORS = f"no errors in the last {ERRORS_SHOWN_S // 60} minutes"


def summary_line(status: Told) -> str:
    """Version, age, memory and event loop lag of the process."""
    memory = status["memory"]
    resident = memory["resident_bytes"]
    held = "unknown" if resident is None else shown_size(resident)
    return (
        f"sidelook {status['version']}, up for {shown_span(status['uptime_s'])}; "
        f"memory {held}, limits.memory {shown_size(memory['limit_bytes'])}; "
        f"event loop lag {shown_span(status['event_loop_lag_s'])}"
    )


def keys_table(dimensions: Sequence[Told]) -> Table:
    """How the lookups of keys ended, since the start; only the outcomes that there were."""
    counts = [each["lookups"] for each in dimensions]
    outcomes = list(dict.fromkeys(name for each in counts for name in each if each[name]))
    title = "keys since the start, by outcome"
    table = _table(title, ["dimension"], ["keys", "hit ratio", *outcomes])
    for each, ended in zip(dimensions, counts, strict=True):
        total = sum(ended.values())
        hits = sum(ended.get(outcome, 0) for outcome in ANSWERED_BY_CACHE)
        cells = [shown_count(total), shown_share(hits, total)]
        cells += (shown_count(ended.get(outcome, 0)) for outcome in outcomes)
        _add(table, each["name"], *cells)
    return table


def stores_table(dimensions: Sequence[Told]) -> Table:
    """What was asked of the stores since the start, and what waits for them now."""
    names = ["queries", "keys fetched", "in flight", "queued keys", "unanswered keys"]
    table = _table("stores", ["dimension", "breaker"], names)
    for each in dimensions:
        backend = each["backend"]
        _add(
            table,
            each["name"],
            backend["breaker"].replace("_", " "),
            shown_count(backend["queries"]),
            shown_count(backend["batch_keys"]),
            f"{backend['queries_in_flight']} of {backend['concurrency_limit']}",
            shown_count(backend["queued_keys"]),
            shown_count(each["waiting_keys"]),
        )
    return table


def caches_table(dimensions: Sequence[Told]) -> Table:
    """What the caches hold, and how they follow their tables."""
    table = _table("caches", ["dimension", "mode", "refresh"], ["entries", "bytes"])
    for each in dimensions:
        cache = each["cache"]
        _add(
            table,
            each["name"],
            cache["mode"],
            ", ".join(_refreshes(each["freshness"])),
            shown_count(cache["rows"]),
            f"{shown_size(cache['bytes'])} of {shown_size(cache['max_bytes'])}",
        )
    return table


def errors_table(dimensions: Sequence[Told]) -> Table:
    """What failed in the last minutes, of all dimensions, the latest first."""
    table = _table("recent errors", ["dimension", "code"], ["keys", "queries", "last"])
    table.add_column("detail", overflow="fold")
    errors = [
        (error, each["name"])
        for each in dimensions
        for error in each["recent_errors"]
        if error["last_ago_s"] <= ERRORS_SHOWN_S
    ]
    errors.sort(key=lambda named: named[0]["last_ago_s"])
    for error, name in errors[:MOST_ERRORS]:
        counts = shown_count(error["keys"]), shown_count(error["queries"])
        ago = shown_ago(error["last_ago_s"])
        _add(table, name, error["code"], *counts, ago, error["detail"])
    return table


def channels_table(channels: Sequence[Told], now_s: float) -> Table:
    """The streams of tasks; `now_s` is since the epoch."""
    names = ["in flight", "backlog", "unused credit"]
    table = _table("channels, in records", ["task", "dimension", "state", "watermark"], names)
    for each in sorted(channels, key=lambda channel: (channel["dimension"], _task(channel))):
        granted = each["exclusive_records"] + each["floating_records"]
        _add(
            table,
            _task(each),
            each["dimension"],
            "idle" if each["is_idle"] else "active",
            shown_watermark(each["watermark_ms"], now_s),
            shown_count(each["in_flight_records"]),
            shown_count(each["backlog_records"]),
            f"{shown_count(each['credit_records'])} of {shown_count(granted)}",
        )
    return table


def _table(title: str, texts: Sequence[str], figures: Sequence[str]) -> Table:
    """Without rows; on a terminal that is too narrow, texts are folded and not cut."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in texts:
        table.add_column(shown(name), overflow="fold")
    for name in figures:
        table.add_column(shown(name), justify="right", overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*map(shown, cells))


def _task(channel: Told) -> str:
    return channel["origin"] or f"connection {channel['connection']}, channel {channel['channel']}"


def _refreshes(freshness: Told) -> Iterator[str]:
    feed, load = freshness["feed"], freshness["load"]
    if feed is not None:
        yield f"feed {feed['state']}"
    if load is not None:
        yield "table whole" if load["is_whole"] else "table not whole"
        if load["is_loading"]:
            yield f"{shown_count(load['rows'])} rows read"
