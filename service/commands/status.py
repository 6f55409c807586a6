"""`status`: what a running sidecar does at this moment, and how healthy it is."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from lookup_core.errors import ErrorCode, SidecarUnreachable
from service.commands.endpoint import (
    DEFAULT,
    CaFileOption,
    CertFileOption,
    ClientFiles,
    EndpointOption,
    KeyFileOption,
    TokenOption,
    parse_endpoint,
)
from service.commands.sidecar_client import NO_SIDECAR, SidecarClient
from service.commands.status_tables import (
    NO_CHANNELS,
    NO_ERRORS,
    Told,
    caches_table,
    channels_table,
    errors_table,
    keys_table,
    stores_table,
    summary_line,
)
from service.commands.tables import print_table, shown

LATELY_S = 15
# Faults of single keys, and none of the service's.
FAULTS_OF_KEYS = (
    ErrorCode.TYPE,
    ErrorCode.INVALID_TEXT,
    ErrorCode.KEY_TOO_LARGE,
    ErrorCode.KEY_REJECTED,
    ErrorCode.AMBIGUOUS,
)
BREAKER_REASONS = {
    "open": "the store does not answer, queries are held back",
    "half_open": "the store is being probed",
}
SILENT = "its feed is silent, so the cache is passed by"
NOT_LOADED = "its table could not be loaded"
SHUTTING_DOWN = "what was taken in is answered, nothing new is"
ALL_ANSWER = {1: "the dimension answers", 2: "both dimensions answer"}  # {dimensions: words}


def health_lines(status: Told) -> Iterator[str]:
    """One word and its reasons, then what feeds and loads failed with."""
    reasons = _named_reasons(status)
    if status["is_draining"]:
        yield f"Shutting down: {SHUTTING_DOWN}"
    elif reasons:
        yield "Degraded"
        for reason, names in reasons.items():
            yield f"  {', '.join(names)}: {reason}"
    else:
        answering = ALL_ANSWER.get(len(status["dimensions"]), "all dimensions answer")
        yield f"Healthy: {answering}"
    for dimension in status["dimensions"]:
        said = status["not_ready"].get(dimension["name"], "")
        for part, fault in _faults(dimension["freshness"], said):
            yield f"  {dimension['name']}: {part}: {fault}"


def _named_reasons(status: Told) -> dict[str, list[str]]:
    """{reason: names of the dimensions that have it}."""
    named: dict[str, list[str]] = {}
    for dimension in status["dimensions"]:
        for reason in _reasons(dimension, status["not_ready"].get(dimension["name"])):
            named.setdefault(reason, []).append(dimension["name"])
    return named


def _reasons(dimension: Told, not_ready: str | None) -> Iterator[str]:
    """What keeps one dimension from being healthy."""
    if unavailable := dimension["unavailable"]:
        yield f"{unavailable['code']}: {unavailable['detail']}"
        return
    if not_ready is not None:
        yield not_ready
    breaker = dimension["backend"]["breaker"]
    if breaker in BREAKER_REASONS:
        yield BREAKER_REASONS[breaker]
    feed, load = dimension["freshness"]["feed"], dimension["freshness"]["load"]
    if feed and feed["state"] == "silent":
        yield SILENT
    # Who is not ready has said already what its load waits for.
    if not_ready is None and load and not load["is_whole"] and not load["is_loading"]:
        yield NOT_LOADED
    codes = _failing(dimension["recent_errors"])
    if codes and breaker == "closed":
        yield f"lookups fail ({', '.join(codes)})"


def _failing(errors: Sequence[Told]) -> list[str]:
    """The codes of what failed lately and is the service's."""
    return [
        error["code"]
        for error in errors
        if error["last_ago_s"] < LATELY_S and error["code"] not in FAULTS_OF_KEYS
    ]


def _faults(freshness: Told, said: str) -> Iterator[tuple[str, str]]:
    """(part, what it failed with), unless that is `said` already."""
    feed, load = freshness["feed"], freshness["load"]
    error = feed["last_error"] if feed else None
    if error is not None and error not in said:
        yield "changes", error
    error = load["last_error"] if load else None
    if error is not None and error not in said:
        begun = "Loading fails so far." if load["is_loading"] else "The last load failed."
        yield "whole table", f"{begun} {error}"


_PARTS = frozenset({"memory", "not_ready", "dimensions", "channels"})


def status(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    endpoint: EndpointOption = DEFAULT,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
) -> None:
    """Tell what the sidecar does at this moment.

    How it is and why, how lookups of keys ended, what it asks of its stores, its caches, what
    failed lately, and the channels of Spark's tasks.
    """
    where = parse_endpoint(endpoint, ClientFiles(ca_file, cert_file, key_file))
    answer = asyncio.run(_ask(SidecarClient(where, token=token)))
    if not answer.keys() >= _PARTS:
        raise SidecarUnreachable(where.text, NO_SIDECAR)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    try:
        _print(answer)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise SidecarUnreachable(where.text, NO_SIDECAR) from error


async def _ask(client: SidecarClient) -> dict[str, Any]:
    async with client:
        return await client.request("GET", "/v1/status")


def _print(answer: Mapping[str, Any]) -> None:
    for line in (summary_line(answer), *health_lines(answer)):
        typer.echo(shown(line).plain)
    print_table(keys_table(answer["dimensions"]))
    print_table(stores_table(answer["dimensions"]))
    print_table(caches_table(answer["dimensions"]))
    errors = errors_table(answer["dimensions"])
    if errors.rows:
        print_table(errors)
    else:
        typer.echo(NO_ERRORS)
    if answer["channels"]:
        print_table(channels_table(answer["channels"], time.time()))
    else:
        typer.echo(NO_CHANNELS)
