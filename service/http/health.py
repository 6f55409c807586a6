"""Health of the dimensions and of the sidecar: `healthy`, `degraded` or `shutting_down`, and why.

The status page and the command `status` only show these results.
"""

from collections.abc import Iterator, Sequence

from lookup_core.errors import ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import LEAST_CACHE_BYTES
from service.http.replies.health_code import HealthCode
from service.http.replies.models import (
    DimensionReply,
    Distrust,
    Freshness,
    Health,
    HealthReason,
    RecentErrorReply,
    SharedReason,
    Unavailable,
)

_SPANS = (("h", 3600), ("min", 60), ("s", 1))
RECENT_S = 15.0  # an older error does not make a dimension unhealthy
# Faults of single keys; they say nothing about the service.
_KEY_FAULTS = frozenset(
    {
        ErrorCode.TYPE,
        ErrorCode.INVALID_TEXT,
        ErrorCode.KEY_TOO_LARGE,
        ErrorCode.KEY_REJECTED,
        ErrorCode.VALUE_REJECTED,
        ErrorCode.ROW_TOO_LARGE,
        ErrorCode.AMBIGUOUS,
    }
)
_BREAKER_TEXTS = {
    BreakerState.OPEN: (HealthCode.BREAKER_OPEN, "queries fail{codes}, and are paused"),
    BreakerState.HALF_OPEN: (HealthCode.BREAKER_HALF_OPEN, "the backend is being probed"),
}
_NO_INDEX = "no index leads from the key to its rows: each query reads the whole table"
_INCOMPLETE = (
    "the change feed did not report a change that an audit found {found} ago; the cache is bypassed"
    " {least}until {needed} comparisons of looked-up rows agree ({agreed} so far)"
)
_OTHER_VALUES = (
    "rows of events differ from the table, so that changed rows are queried; the connector masks,"
    " truncates or transforms columns"
)
_NOT_STARTED = "the change feed cannot start; the cache is bypassed"
_UNPROVED = "the change feed may not report the table: {}"
_TOO_SMALL = (
    "the cache shrank to {:,} bytes, which have no room for rows: each lookup is a query; raise"
    " limits.memory, or lower max_bytes of other caches"
)
_ALL_AVAILABLE = {1: "the dimension is available", 2: "both dimensions are available"}


def dimension_health(  # noqa: PLR0913 -- the facts of one dimension
    *,
    unavailable: Unavailable | None,
    not_ready: str | None,
    breaker: BreakerState,
    freshness: Freshness,
    recent_errors: Sequence[RecentErrorReply],
    uses_index: bool | None = True,
    cache_bytes: int | None = None,
) -> list[HealthReason]:
    """The reasons of one dimension, warnings first; healthy without a warning.

    `not_ready` is what the dimension waits for before it counts as started. `uses_index` is None
    if that is not known, `cache_bytes`, the present bound, without a cache.
    """
    reasons: list[HealthReason] = []
    if unavailable is not None:
        text = f"{unavailable.code}: {unavailable.detail}"
        reasons.append(_reason(HealthCode.UNAVAILABLE, text))
    else:
        if not_ready is not None:
            reasons.append(_reason(HealthCode.NOT_READY, not_ready))
        reasons += _backend_warnings(breaker, recent_errors)
        reasons += _freshness_warnings(freshness, is_ready=not_ready is None)
        if cache_bytes is not None and cache_bytes < LEAST_CACHE_BYTES:
            reasons.append(_reason(HealthCode.CACHE_TOO_SMALL, _TOO_SMALL.format(cache_bytes)))
    reasons += _refresh_errors(freshness, not_ready or "")
    if uses_index is False and unavailable is None:
        reasons.append(_reason(HealthCode.NO_INDEX, _NO_INDEX))
    return reasons


def sidecar_health(
    dimensions: Sequence[DimensionReply],
    *,
    is_draining: bool,
    unreachable: str | None = None,
    token_faults: Sequence[str] = (),
) -> Health:
    """State and reasons of the sidecar; a reason names all dimensions that share it.

    `unreachable` says why no client can connect to a listener, `token_faults` which token files are
    not usable. During a drain the warnings of dimensions are left out.
    """
    of_all = [_reason(HealthCode.TOKEN_UNUSABLE, fault) for fault in token_faults]
    if unreachable is not None:
        of_all.insert(0, _reason(HealthCode.UNREACHABLE, unreachable))
    shared = {reason: [each.name for each in dimensions] for reason in of_all}
    for dimension in dimensions:
        for reason in dimension.health:
            if not (is_draining and reason.severity == "warning"):
                shared.setdefault(reason, []).append(dimension.name)
    reasons = [
        SharedReason(**reason.model_dump(), dimensions=names)
        for reason, names in sorted(shared.items(), key=lambda item: item[0].severity == "info")
    ]
    affected = {name for each in reasons if each.severity == "warning" for name in each.dimensions}
    if is_draining:
        summary = "running requests are answered; new lookups are refused"
        return Health(state="shutting_down", summary=summary, reasons=reasons)
    if affected:
        summary = f"{len(affected)} of {len(dimensions)} dimensions affected"
        return Health(state="degraded", summary=summary, reasons=reasons)
    summary = _ALL_AVAILABLE.get(len(dimensions), "all dimensions are available")
    return Health(state="healthy", summary=summary, reasons=reasons)


def _backend_warnings(
    breaker: BreakerState, recent_errors: Sequence[RecentErrorReply]
) -> Iterator[HealthReason]:
    recent = [error.code for error in recent_errors if error.last_ago_s < RECENT_S]
    failures = [code for code in recent if code not in _KEY_FAULTS]
    codes = f" ({', '.join(failures)})" if failures else ""
    if breaker is not BreakerState.CLOSED:
        code, text = _BREAKER_TEXTS[breaker]
        yield _reason(code, text.format(codes=codes))
    elif codes:
        yield _reason(HealthCode.LOOKUPS_FAIL, f"lookups fail{codes}")


def _freshness_warnings(freshness: Freshness, *, is_ready: bool) -> Iterator[HealthReason]:
    feed, load = freshness.feed, freshness.load
    if feed is not None and feed.state is FeedState.SILENT:
        yield _reason(HealthCode.FEED_STALLED, "the change feed is stalled; the cache is bypassed")
    if is_ready and feed is not None and feed.state is FeedState.STARTING and feed.last_error:
        yield _reason(HealthCode.FEED_NOT_STARTED, _NOT_STARTED)
    if feed is not None and feed.doubt is not None:
        yield _reason(HealthCode.FEED_UNPROVED, _UNPROVED.format(feed.doubt))
    if feed is not None and feed.distrust is not None:
        yield _reason(HealthCode.FEED_INCOMPLETE, _incomplete_text(feed.distrust))
        return  # a load waits for the feed
    # Before the start, `not_ready` already says what the load waits for.
    if is_ready and load is not None and not (load.is_whole or load.is_loading):
        yield _reason(HealthCode.LOAD_FAILED, "the full table could not be loaded")


def _incomplete_text(distrust: Distrust) -> str:
    """Names no key: keys may be personal data."""
    least = f"for at least {_span_text(distrust.least_s)}, and " if distrust.least_s else ""
    found, agreed, needed = _span_text(distrust.found_ago_s), distrust.agreed, distrust.needed
    return _INCOMPLETE.format(found=found, least=least, agreed=agreed, needed=needed)


def _span_text(seconds: float) -> str:
    """The duration in whole seconds, minutes or hours."""
    unit, length_s = next(each for each in _SPANS if seconds >= each[1] or each[1] == 1)
    return f"{round(seconds / length_s)} {unit}"


def _refresh_errors(freshness: Freshness, not_ready: str) -> Iterator[HealthReason]:
    """Errors of feed and load that `not_ready` does not name."""
    feed, load = freshness.feed, freshness.load
    if feed is not None and feed.are_values_refused:
        yield _reason(HealthCode.EVENT_VALUES_DIFFER, _OTHER_VALUES)
    if feed is not None and feed.last_error is not None and feed.last_error not in not_ready:
        yield _reason(HealthCode.FEED_ERROR, f"the change feed failed: {feed.last_error}")
    if load is not None and load.last_error is not None and load.last_error not in not_ready:
        failed = "an attempt of the running load" if load.is_loading else "the last load"
        yield _reason(HealthCode.LOAD_ERROR, f"{failed} failed: {load.last_error}")


def _reason(code: HealthCode, text: str) -> HealthReason:
    return HealthReason(severity=code.severity, code=code, text=text)
