"""How a sidecar is doing, in a word and with its reasons."""

from pathlib import Path
from typing import Any

import pytest

from lookup_core.freshness.feed_health import FeedState
from lookup_core.statistics import FeedStatistics, LoadStatistics, RefreshStatistics
from service.commands import status as status_health
from service.commands.status import health_lines
from service.http import status_page
from service.http.routes.dimensions import freshness
from tests.service.commands.status_answer import DIMENSION, ERROR, STATUS

PAGE = Path(status_page.__file__).parent / "page" / "health.js"
HEALTHY = ["Healthy: the dimension answers"]
HELD_BACK = "the store does not answer, queries are held back"


def lines(change: dict[str, Any], **status: object) -> list[str]:
    """What is said of one dimension with that change."""
    return list(health_lines(STATUS | {"dimensions": [DIMENSION | change]} | status))


def of_refresh(**parts: Any) -> dict[str, Any]:  # noqa: ANN401  # a feed, a load
    """The change that this refresh makes."""
    return {"freshness": freshness(RefreshStatistics(**parts))}


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "the dimension answers"),
        (2, "both dimensions answer"),
        (3, "all dimensions answer"),
    ],
)
def test_healthy_is_one_line(count: int, words: str) -> None:
    """All of the dimensions answer."""
    dimensions = [DIMENSION] * count

    assert list(health_lines(STATUS | {"dimensions": dimensions})) == [f"Healthy: {words}"]


def test_drain_is_told() -> None:
    """Who shuts down says what becomes of lookups."""
    told = "Shutting down: what was taken in is answered, nothing new is"

    assert lines({}, is_draining=True) == [told]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"unavailable": {"code": "table_unavailable", "detail": "no table x"}},
            "table_unavailable: no table x",
        ),
        ({"backend": {"breaker": "open"}, "recent_errors": [ERROR]}, HELD_BACK),
        ({"backend": {"breaker": "half_open"}}, "the store is being probed"),
        ({"recent_errors": [ERROR]}, "lookups fail (backend_unavailable)"),
        (
            of_refresh(feed=FeedStatistics(FeedState.SILENT)),
            "its feed is silent, so the cache is passed by",
        ),
        (of_refresh(load=LoadStatistics()), "its table could not be loaded"),
    ],
)
def test_reasons_are_told(change: dict[str, Any], reason: str) -> None:
    """Degraded, and why: with the dimension's name."""
    assert lines(change) == ["Degraded", f"  airports: {reason}"]


@pytest.mark.parametrize("change", [{"last_ago_s": 15.0}, {"code": "type"}, {"code": "ambiguous"}])
def test_old_errors_and_faults_of_keys_are_healthy(change: dict[str, Any]) -> None:
    """What is over, and what is the fault of a single key, is none of the service's."""
    assert lines({"recent_errors": [ERROR | change]}) == HEALTHY


def test_same_reason_is_told_once() -> None:
    """A database that stops takes all of its dimensions along, in one line."""
    down = [DIMENSION | {"name": name, "backend": {"breaker": "open"}} for name in ("a", "b")]

    told = list(health_lines(STATUS | {"dimensions": down}))

    assert told == ["Degraded", f"  a, b: {HELD_BACK}"]


def test_cold_says_what_is_awaited() -> None:
    """Its reason has the error of the load already, which is not told again."""
    change = of_refresh(load=LoadStatistics(last_error="gone"))

    told = lines(change, not_ready={"airports": "its load failed: gone"})

    assert told == ["Degraded", "  airports: its load failed: gone"]


@pytest.mark.parametrize(
    ("refresh", "fault"),
    [
        ({"feed": FeedStatistics(FeedState.LIVE, last_error="cut")}, "changes: cut"),
        (
            {"load": LoadStatistics(is_whole=True, last_error="gone")},
            "whole table: The last load failed. gone",
        ),
        (
            {"load": LoadStatistics(is_loading=True, last_error="gone")},
            "whole table: Loading fails so far. gone",
        ),
    ],
)
def test_faults_of_refreshes_are_told(refresh: dict[str, Any], fault: str) -> None:
    """Also where lookups are still answered: what the feed or the load fails with."""
    assert lines(of_refresh(**refresh)) == [*HEALTHY, f"  airports: {fault}"]


def test_words_are_the_pages() -> None:
    """The command and the head of the page say the same."""
    page = PAGE.read_text()
    words = [
        *status_health.FAULTS_OF_KEYS,
        *status_health.BREAKER_REASONS.values(),
        *(status_health.SILENT, status_health.NOT_LOADED, status_health.SHUTTING_DOWN),
        *status_health.ALL_ANSWER.values(),
        f"LATELY_S = {status_health.LATELY_S};",
    ]

    assert [each for each in words if each not in page] == []
