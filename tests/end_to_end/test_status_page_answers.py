"""What the status page makes of answers that are rare: odd names, odd counts, another version's."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.end_to_end.page_actions import PATIENCE_MS, change_status, enter_token, opened_page
from tests.end_to_end.status_page_service import TOKEN, Watched

INHERITED = ["constructor", "toString", "__proto__"]  # what every object of JavaScript has

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture
def shown(browser: Browser, quiet: Watched) -> Iterator[Page]:
    """The page of that sidecar, with figures."""
    with opened_page(browser) as page:
        page.goto(quiet.url)
        enter_token(page, TOKEN)
        expect(page.locator("#state-word")).to_have_text("Healthy")
        yield page


def test_counts_do_not_contradict(shown: Page) -> None:
    """Keys without an answer, and keys in line for a query, are told apart: each may be alone."""
    change_status(shown, _with_deserted_keys)

    facts = shown.locator(".card .facts")
    expect(facts).to_contain_text("unanswered keys0")
    expect(facts).to_contain_text("queued keys2")


def test_names_that_objects_inherit_are_names(shown: Page) -> None:
    """A dimension may be called `constructor`."""
    change_status(shown, _with_inherited_names)

    expect(shown.locator(".card h3")).to_have_text(INHERITED)
    expect(shown.locator("#state-word")).to_have_text("Healthy")


def test_health_is_shown_as_reported(shown: Page) -> None:
    """State and warnings are those of the service; information is left out."""
    change_status(shown, _with_two_reasons)

    expect(shown.locator("#state-word")).to_have_text("Degraded")
    expect(shown.locator("#state-reasons")).to_have_text("constructor, b: its table is loaded")


def test_unknown_state_is_shown_by_its_name(shown: Page) -> None:
    """A breaker state that only a newer sidecar knows is shown by its name."""
    change_status(shown, _with_isolated_breaker)

    expect(shown.locator(".card .mark").first).to_have_text("breaker isolated")


def _without_dimensions(status: Any) -> None:  # noqa: ANN401  # any JSON
    del status["dimensions"]


def _without_channels(status: Any) -> None:  # noqa: ANN401  # any JSON
    del status["channels"]


def _without_errors(status: Any) -> None:  # noqa: ANN401  # any JSON
    for dimension in status["dimensions"]:
        del dimension["recent_errors"]


@pytest.mark.parametrize("change", [_without_dimensions, _without_channels, _without_errors])
def test_unreadable_answer_is_told(shown: Page, change: Callable[[Any], None]) -> None:
    """What another version answers is not half shown: the page says what may help.

    It goes on by itself once it can read the answers again.
    """
    change_status(shown, change)
    _expect_unreadable(shown)

    shown.unroute_all()

    expect(shown.locator("#state-word")).to_have_text("Healthy")
    expect(shown.locator("#state-since")).to_be_hidden()
    expect(shown.locator(".card")).to_be_visible()


@pytest.mark.parametrize("body", ["<p>Soon here</p>", "null", "[]"])
def test_answer_of_something_else_is_told(shown: Page, body: str) -> None:
    """What is no status at all is told in the same words."""
    shown.route("**/v1/status", lambda route: route.fulfill(body=body))

    _expect_unreadable(shown)


def _expect_unreadable(page: Page) -> None:
    expect(page.locator("#state-word")).to_have_text("Cannot be read")
    expect(page.locator("#state-reasons")).to_contain_text("reloading the page may help")
    expect(page.locator("#state-since")).to_have_text(
        re.compile(r"^(Next attempt in \d+ s\.|Trying)")
    )
    expect(page.locator("main")).to_be_hidden()
    expect(page.locator("#token-form")).to_be_hidden()


def _with_deserted_keys(status: Any) -> None:  # noqa: ANN401  # any JSON
    """Nobody waits for the keys in line: all askers gave up."""
    for dimension in status["dimensions"]:
        dimension["waiting_keys"], dimension["backend"]["queued_keys"] = 0, 2


def _with_inherited_names(status: Any) -> None:  # noqa: ANN401  # any JSON
    (dimension,) = status["dimensions"]
    status["dimensions"] = [dimension | {"name": name} for name in INHERITED]


def _with_two_reasons(status: Any) -> None:  # noqa: ANN401  # any JSON
    warning = {"severity": "warning", "code": "not_ready", "text": "its table is loaded"}
    info = {"severity": "info", "code": "feed_error", "text": "the change feed failed: cut"}
    status["health"] = {
        "state": "degraded",
        "summary": "2 of 2 dimensions affected",
        "reasons": [warning | {"dimensions": ["constructor", "b"]}, info | {"dimensions": ["b"]}],
    }


def _with_isolated_breaker(status: Any) -> None:  # noqa: ANN401  # any JSON
    for dimension in status["dimensions"]:
        dimension["backend"]["breaker"] = "isolated"
