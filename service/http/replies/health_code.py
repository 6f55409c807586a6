"""Codes of the facts about the health of dimensions and sidecar."""

from enum import StrEnum
from typing import Literal, Self

Severity = Literal["info", "warning"]


class HealthCode(StrEnum):
    """Name of a fact about the health."""

    severity: Severity
    meaning: str

    def __new__(cls, value: str, severity: Severity, meaning: str) -> Self:
        """Create a member with its severity and its meaning, a clause."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.severity = severity
        member.meaning = meaning
        return member

    UNREACHABLE = "unreachable", "warning", "clients cannot connect to a listener"
    TOKEN_UNUSABLE = "token_unusable", "warning", "a token file cannot be used"
    UNAVAILABLE = "unavailable", "warning", "the dimension refuses lookups, with an error code"
    NOT_READY = "not_ready", "warning", "the first load or the start of the feed is not complete"
    BREAKER_OPEN = "breaker_open", "warning", "queries fail, and are paused"
    BREAKER_HALF_OPEN = "breaker_half_open", "warning", "a query probes the backend"
    LOOKUPS_FAIL = "lookups_fail", "warning", "lookups failed in the last 15 seconds"
    FEED_STALLED = "feed_stalled", "warning", "the feed is `silent`, and the cache is bypassed"
    FEED_NOT_STARTED = (
        *("feed_not_started", "warning"),
        "the feed is `starting` after an error, and the cache is bypassed",
    )
    FEED_UNPROVED = "feed_unproved", "warning", "the feed may not report the table"
    FEED_INCOMPLETE = (
        *("feed_incomplete", "warning"),
        "an audit found a change that the feed omitted, and the cache is bypassed",
    )
    LOAD_FAILED = "load_failed", "warning", "the full table is not loaded"
    CACHE_TOO_SMALL = "cache_too_small", "warning", "the cache has no room for rows"
    NO_INDEX = "no_index", "info", "each query reads the whole table"
    EVENT_VALUES_DIFFER = (
        *("event_values_differ", "info"),
        "rows of events differ from the table, and are not used",
    )
    FEED_ERROR = "feed_error", "info", "an attempt to read the feed failed"
    LOAD_ERROR = "load_error", "info", "an attempt to load the table failed"
