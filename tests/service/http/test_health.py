"""Health of dimensions and of the sidecar: the cases of `health.txt`, and their summary."""

from pathlib import Path
from typing import Any

import pytest

from lookup_core.freshness.feed_health import FeedState
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.statistics import FeedStatistics, LoadStatistics, RefreshStatistics
from service.http.health import dimension_health, sidecar_health
from service.http.replies.models import (
    DimensionReply,
    Freshness,
    HealthReason,
    RecentErrorReply,
    Unavailable,
)
from tests.service.case_tables import cases
from tests.service.config.configuration import parsed

HEALTH = Path(__file__).with_name("health.txt")
CLOSED = "closed"


def health_of(facts: dict[str, Any]) -> list[HealthReason]:
    """The health of a dimension with these facts; all others are without fault."""
    feed, load, missing = facts.get("feed"), facts.get("load"), facts.get("unavailable")
    refresh = RefreshStatistics(
        feed=feed and FeedStatistics(**feed | {"state": FeedState(feed["state"])}),
        load=load and LoadStatistics(**load),
    )
    errors = [
        RecentErrorReply(
            code=code, detail="", queries=1, keys=1, first_ago_s=70.0, last_ago_s=ago_s
        )
        for code, ago_s in facts.get("errors", {}).items()
    ]
    return dimension_health(
        unavailable=missing and Unavailable(**missing),
        not_ready=facts.get("not_ready"),
        breaker=BreakerState[facts.get("breaker", CLOSED).upper()],
        freshness=Freshness.model_validate(refresh),
        recent_errors=errors,
        uses_index=facts.get("uses_index"),
        cache_bytes=facts.get("cache_bytes"),
    )


@pytest.mark.parametrize(("facts", "expected"), [*cases(HEALTH)])
def test_dimension_has_these_reasons(facts: str, expected: list[str]) -> None:
    """The facts of a dimension have these reasons, warnings first."""
    reasons = health_of(dict(parsed(facts)))

    assert [f"{each.severity} {each.code}: {each.text}" for each in reasons] == expected


OPEN = {"breaker": "open"}
FAILED_FEED = {"feed": {"state": "live", "last_error": "cut"}}
PAUSED = "queries fail, and are paused"
CUT = "the change feed failed: cut"


@pytest.mark.parametrize(
    ("dimensions", "is_draining", "expected"),
    [
        ([{}], False, ("healthy", "the dimension is available", {})),
        ([{}, {}], False, ("healthy", "both dimensions are available", {})),
        ([{}, {}, {}], False, ("healthy", "all dimensions are available", {})),
        ([FAILED_FEED], False, ("healthy", "the dimension is available", {CUT: ["a"]})),
        (
            [FAILED_FEED, OPEN, OPEN],
            False,
            ("degraded", "2 of 3 dimensions affected", {PAUSED: ["b", "c"], CUT: ["a"]}),
        ),
        (
            [OPEN | FAILED_FEED],
            True,
            (
                "shutting_down",
                "running requests are answered; new lookups are refused",
                {CUT: ["a"]},
            ),
        ),
    ],
)
def test_sidecar_sums_up_its_dimensions(
    dimensions: list[dict[str, Any]],
    expected: tuple[str, str, dict[str, list[str]]],
    *,
    is_draining: bool,
) -> None:
    """One warning degrades the sidecar; equal reasons are merged, and a drain hides warnings."""
    described = [
        DimensionReply.model_construct(name=name, health=health_of(facts))
        for name, facts in zip("abc", dimensions, strict=False)
    ]

    health = sidecar_health(described, is_draining=is_draining)

    reasons = {each.text: each.dimensions for each in health.reasons}
    assert (health.state, health.summary, reasons) == expected
    assert [*reasons] == [*expected[2]]
