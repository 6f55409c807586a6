"""The command `status`: health, figures and recent errors of a running sidecar, as tables."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.table import Table

from lookup_core.errors import SidecarUnreachable
from service.commands.endpoint import JsonOption
from service.commands.sidecar_client import NO_SIDECAR, SidecarClient, sidecar_command
from service.commands.tables import (
    print_table,
    shown,
    shown_ago,
    shown_share,
    shown_size,
    shown_span,
    shown_watermark,
)

_Object = Mapping[str, Any]  # a JSON object of the status

_NO_CHANNELS = "no channels are open: no Spark task is looking up rows"
_CACHE_OUTCOMES = ("hit", "stale")
_ERRORS_SHOWN_S = 600
_MAX_ERRORS = 30
_NO_ERRORS = f"no errors in the last {_ERRORS_SHOWN_S // 60} minutes"
_REQUIRED = frozenset({"memory", "health", "dimensions", "channels"})


@sidecar_command
async def status(
    *,
    client: SidecarClient,
    as_json: JsonOption = False,
) -> None:
    """Show the state of a running sidecar.

    Health and its reasons, outcomes of lookups, queries to the backends, caches, recent errors,
    and the channels of Spark tasks.
    """
    answer = await client.request("GET", "/v1/status")
    if not answer.keys() >= _REQUIRED:
        raise SidecarUnreachable(client.address.url, NO_SIDECAR)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    try:
        _print(answer)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise SidecarUnreachable(client.address.url, NO_SIDECAR) from error


def _print(answer: _Object) -> None:
    dimensions, channels = answer["dimensions"], answer["channels"]
    for line in (summary_line(answer), *health_lines(answer["health"])):
        typer.echo(shown(line).plain)
    for table in (keys_table, backends_table, caches_table):
        print_table(table(dimensions))
    errors = errors_table(dimensions)
    if errors.rows:
        print_table(errors)
    else:
        typer.echo(_NO_ERRORS)
    ended = list(ended_lines(answer.get("ended_streams", ())))  # an older sidecar has none
    if channels:
        print_table(channels_table(channels, time.time()))
    elif not ended:
        typer.echo(_NO_CHANNELS)
    for line in ended:
        typer.echo(shown(line).plain)


def health_lines(health: _Object) -> Iterator[str]:
    """State and summary, then the reasons with the names of their dimensions."""
    yield f"{health['state'].replace('_', ' ').capitalize()}: {health['summary']}"
    for reason in health["reasons"]:
        names = [f'"{name}"' for name in reason["dimensions"]]
        yield f"  dimension{'s' * (len(names) > 1)} {', '.join(names)}: {reason['text']}"


def summary_line(status: _Object) -> str:
    """Version, age, memory and event loop lag of the process."""
    memory = status["memory"]
    resident = memory["resident_bytes"]
    held = "unknown" if resident is None else shown_size(resident)
    return (
        f"sidelook {status['version']}, up for {shown_span(status['uptime_s'])}; "
        f"memory {held}, limits.memory {shown_size(memory['limit_bytes'])}; "
        f"event loop lag {shown_span(status['event_loop_lag_s'])}"
    )


def keys_table(dimensions: Sequence[_Object]) -> Table:
    """Outcomes of keys since the start; outcomes that never occurred have no column."""
    counts = [each["lookups"] for each in dimensions]
    outcomes = list(dict.fromkeys(name for each in counts for name in each if each[name]))
    title = "keys since the start, by outcome"
    table = _table(title, ["dimension"], ["keys", "hit ratio", *outcomes])
    for each, ended in zip(dimensions, counts, strict=True):
        total = sum(ended.values())
        hits = sum(ended.get(outcome, 0) for outcome in _CACHE_OUTCOMES)
        by_outcome = (f"{ended.get(outcome, 0):,}" for outcome in outcomes)
        _add_row(table, each["name"], f"{total:,}", shown_share(hits, total), *by_outcome)
    return table


def backends_table(dimensions: Sequence[_Object]) -> Table:
    """Queries since the start, and queued keys now."""
    names = ["queries", "keys fetched", "in flight", "queued keys", "unanswered keys"]
    table = _table("backends", ["dimension", "breaker"], names)
    for each in dimensions:
        backend = each["backend"]
        cells = [each["name"], backend["breaker"].replace("_", " ")]
        cells += [f"{backend['queries']:,}", f"{backend['batch_keys']:,}"]
        cells += [f"{backend['queries_in_flight']} of {backend['concurrency_limit']}"]
        cells += [f"{backend['queued_keys']:,}", f"{each['waiting_keys']:,}"]
        _add_row(table, *cells)
    return table


def caches_table(dimensions: Sequence[_Object]) -> Table:
    """Contents of the caches, and the state of their change feeds and loads."""
    texts = ["dimension", "mode", "refresh", "shared memory"]
    table = _table("caches", texts, ["entries", "bytes"])
    for each in dimensions:
        cache, refreshes = each["cache"], ", ".join(_refreshes(each["freshness"]))
        used = f"{shown_size(cache['bytes'])} of {shown_size(cache['max_bytes'])}"
        shared = _shared(cache.get("shared"))
        _add_row(table, each["name"], cache["mode"], refreshes, shared, f"{cache['rows']:,}", used)
    return table


def _shared(shared: _Object | None) -> str:
    if shared is None:  # an older sidecar
        return ""
    if shared["why_private"] is not None:
        return f"no: {shared['why_private'].partition('; ')[0]}"
    return f"{shown_size(shared['bytes'])}, {shared['keys']:,} keys"


def errors_table(dimensions: Sequence[_Object]) -> Table:
    """Errors of the last minutes of all dimensions, latest first."""
    table = _table("recent errors", ["dimension", "code"], ["keys", "queries", "last"])
    table.add_column("detail", overflow="fold")
    errors = [
        (error, each["name"])
        for each in dimensions
        for error in each["recent_errors"]
        if error["last_ago_s"] <= _ERRORS_SHOWN_S
    ]
    errors.sort(key=lambda named: named[0]["last_ago_s"])
    for error, name in errors[:_MAX_ERRORS]:
        counts = f"{error['keys']:,}", f"{error['queries']:,}"
        _add_row(
            table, name, error["code"], *counts, shown_ago(error["last_ago_s"]), error["detail"]
        )
    return table


def channels_table(channels: Sequence[_Object], now_s: float) -> Table:
    """The channels of Spark tasks; `now_s` is in seconds since the epoch."""
    names = ["in flight", "backlog", "unused credit"]
    table = _table("channels, in records", ["task", "dimension", "state", "watermark"], names)
    for each in sorted(channels, key=lambda channel: (channel["dimension"], _task(channel))):
        granted = each["exclusive_records"] + each["floating_records"]
        cells = [_task(each), each["dimension"], "idle" if each["is_idle"] else "active"]
        cells += [shown_watermark(each["watermark_ms"], now_s)]
        cells += [f"{each['in_flight_records']:,}", f"{each['backlog_records']:,}"]
        cells += [f"{each['credit_records']:,} of {granted:,}"]
        _add_row(table, *cells)
    return table


def ended_lines(streams: Sequence[_Object]) -> Iterator[str]:
    """Dimensions whose last channel closed within the last minute."""
    for each in streams:
        yield (
            f"no channel of {each['dimension']} is open: the last of {each['channels']:,} ended "
            f"{shown_ago(each['ended_ago_s'])} after {each['keys']:,} keys in all "
            f"({each['origin'] or 'unnamed'})"
        )


def _table(title: str, texts: Sequence[str], figures: Sequence[str]) -> Table:
    """A table without rows; a narrow terminal folds cells instead of cutting them."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in texts:
        table.add_column(shown(name), overflow="fold")
    for name in figures:
        table.add_column(shown(name), justify="right", overflow="fold")
    return table


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*map(shown, cells))


def _task(channel: _Object) -> str:
    return channel["origin"] or f"connection {channel['connection']}, channel {channel['channel']}"


def _refreshes(freshness: _Object) -> Iterator[str]:
    feed, load = freshness["feed"], freshness["load"]
    if feed is not None:
        yield f"feed {feed['state']}"
        if not feed.get("is_audited", True):  # an older sidecar does not say
            yield "not audited"
        yield from _audited(feed.get("audited_keys", {}))
    if load is not None:
        yield "table loaded" if load["is_whole"] else "table not loaded"
        if load["is_loading"]:
            yield f"{load['rows']:,} rows read"


def _audited(keys: Mapping[str, int]) -> Iterator[str]:
    if compared := keys.get("agreed", 0) + keys.get("suspect", 0):
        wrong = keys.get("contradicted", 0)
        yield f"{compared:,} keys audited" + (f" ({wrong:,} wrong)" if wrong else "")
