"""How a sidecar is doing, in the words of the head of its status page, and why.

Judges by what the sidecar tells of itself; it asks no store.
"""

from collections.abc import Iterator, Sequence

from lookup_core.errors import ErrorCode
from service.commands.status_tables import Told

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
