"""The status page in a real Chromium, over a real sidecar with real load."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.end_to_end.page_actions import (
    PATIENCE_MS,
    PHONE,
    change_status,
    hide,
    opened_page,
)
from tests.end_to_end.page_checks import (
    contrasts,
    focusable,
    is_in_window,
    outlines,
    problems,
    watch_focus,
)
from tests.end_to_end.page_load import FIRST_NEW, STRANGE_ORIGIN
from tests.end_to_end.status_page_service import (
    CHANNELS,
    Busy,
    busy_service,
)
from tests.shown_shares import SHOWN_SHARES

NEW_WORDS = {"hit ratio", "coalesced keys", "unused credit", "backlog", "watermark", "in flight"}
LEAST_CONTRAST = 4.5
_ENDS_OF_NOTES = ("in total$", "% overall$", "in total$", "overall$")

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    """A sidecar under load, with 300 channels of one dimension and two of another."""
    # Sockets want a short path.
    with (
        tempfile.TemporaryDirectory(prefix="sidelook-") as folder,
        busy_service(Path(folder)) as service,
    ):
        yield service


@pytest.fixture
def shown(page: Page, busy: Busy) -> Page:
    """The page of the busy sidecar, with figures."""
    page.goto(busy.watched.url)
    expect(page.locator(".card")).to_have_count(2)
    return page


def test_figures_move(shown: Page) -> None:
    """Lookups, queries, keys per query and the hit ratio are shown, and totals grow."""
    card = shown.get_by_label("dimension customers")
    figure = card.locator(".figure", has_text="keys/s")
    expect(figure.locator("b")).to_have_text(_number(at_least=1))
    first = figure.locator("small").inner_text()

    expect(figure.locator("small")).not_to_have_text(first)
    expect(card.locator(".figure", has_text="hit ratio").locator("b")).to_have_text(
        re.compile(r"^[1-9]\d?(\.\d)? %$")
    )
    for name in ("queries/s", "keys per query"):
        expect(card.locator(".figure", has_text=name).locator("b")).to_have_text(_number())
    expect(card.locator(".chart path.hit")).to_have_attribute("d", re.compile("^M.+Z$"))
    expect(card.locator(".outcomes")).to_contain_text(re.compile(r"hit [\d.]+K?/s"))
    expect(shown.locator("#state-word")).to_have_text("Healthy")


def test_texts_of_others_are_no_markup(shown: Page) -> None:
    """What a client calls itself is shown as it is, and nothing of it is run."""
    origins = shown.locator("details", has_text="customers").locator(".origin")

    expect(origins).to_have_text([STRANGE_ORIGIN, "task 0"])
    assert shown.locator("#channels img").count() == 0


def test_hundreds_of_channels_stay_usable(shown: Page) -> None:
    """They are one line with its sums, opened by a key, and stay open while figures move."""
    group = shown.locator("details", has_text="places")
    expect(group.locator("summary")).to_contain_text(f"{CHANNELS} channels")
    expect(group.locator(".line .lag")).to_have_text(re.compile(r"s behind$"))
    assert group.locator("li").count() == 0

    group.locator("summary").press("Enter")
    expect(group.locator("li")).to_have_count(CHANNELS)

    uptime = shown.locator("#process").inner_text()
    expect(shown.locator("#process")).not_to_have_text(uptime)
    expect(group.locator("li")).to_have_count(CHANNELS)
    expect(group.locator("li").nth(2)).to_contain_text("partition 2active")
    expect(group.locator("summary")).to_be_focused()


def test_keyboard_reaches_everything(shown: Page) -> None:
    """All that can be used gets the focus by Tab alone, and shows that it has it."""
    shown.locator("details", has_text="places").locator("summary").press("Enter")
    wanted = focusable(shown)
    assert wanted >= 8

    watch_focus(shown)
    for _ in range(wanted + 2):  # once round, past the browser's own bar
        shown.keyboard.press("Tab")

    seen = outlines(shown)
    assert len(seen) == wanted
    assert "none" not in seen.values()


def test_phone_scrolls_one_way(shown: Page) -> None:
    """At 390 pixels nothing is wider than the screen, with all groups open."""
    shown.set_viewport_size(PHONE)
    shown.locator("details", has_text="places").locator("summary").click()
    expect(shown.locator("details", has_text="places").locator("li")).to_have_count(CHANNELS)

    width = shown.evaluate("document.documentElement.scrollWidth")

    assert width <= PHONE["width"]


def test_phone_breaks_no_name_of_a_dimension(shown: Page) -> None:
    """At 390 pixels the name beside an error stays in one line."""
    shown.set_viewport_size(PHONE)
    change_status(shown, _with_an_error)

    error = shown.locator("#errors li", has_text="backend_unavailable").first

    expect(error.locator("p")).to_have_text("no connection")
    lines = "(name) => name.offsetHeight / parseFloat(getComputedStyle(name).lineHeight)"
    assert error.locator("b").evaluate(lines) < 1.5


@pytest.mark.parametrize(("part", "whole", "text"), [*SHOWN_SHARES, (6, 5, "100 %")])
def test_shares_are_rounded(shown: Page, part: int, whole: int, text: str) -> None:
    """Half up, as the command `status` does; nearly all is not all, nearly none not none."""
    assert shown.evaluate(f"percent({part}, {whole})") == text


def test_averages_are_no_sums(shown: Page) -> None:
    """What was counted has a sum; an average and a ratio are overall."""
    note = shown.get_by_label("dimension customers").locator(".figure small")

    expect(note).to_have_text([re.compile(end) for end in _ENDS_OF_NOTES])
    expect(shown.locator("#state-reasons")).to_have_text("both dimensions are available")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(shown: Page, scheme: str) -> None:
    """Every text has 4.5 : 1 on its ground, in both schemes."""
    shown.emulate_media(color_scheme="dark" if scheme == "dark" else "light")

    ratios = contrasts(shown)

    assert len(ratios) > 40
    poor = {text: ratio for text, ratio in ratios.items() if ratio < LEAST_CONTRAST}
    assert poor == {}


def test_schemes_differ(shown: Page) -> None:
    """The page is dark where a person wants it dark."""
    ground = "getComputedStyle(document.body).backgroundColor"
    shown.emulate_media(color_scheme="light")
    light = shown.evaluate(ground)
    shown.emulate_media(color_scheme="dark")

    assert (light, shown.evaluate(ground)) == ("rgb(244, 245, 247)", "rgb(14, 19, 25)")


def test_structure_is_accessible(shown: Page) -> None:
    """Names, headings, landmarks and labels are there for who does not see the page."""
    assert problems(shown) == []


def test_words_explain_themselves(shown: Page) -> None:
    """Each word that may be new to somebody tells what it means, by a key, and beside it."""
    words, meaning = shown.locator(".word"), shown.locator("#meaning")
    assert set(words.all_inner_texts()) >= NEW_WORDS

    for word in words.all():
        word.press("Enter")
        expect(meaning).to_be_visible()
        expect(meaning).to_have_text(str(word.get_attribute("title")))
        assert is_in_window(meaning)
        shown.keyboard.press("Escape")
        expect(meaning).to_be_hidden()
        expect(word).to_be_focused()


def test_finger_opens_a_meaning(browser: Browser, busy: Busy) -> None:
    """On a phone a word is tapped, and a tap elsewhere takes its meaning away."""
    with opened_page(browser, viewport=PHONE, is_phone=True) as page:
        page.goto(busy.watched.url)
        page.get_by_role("button", name="backlog").tap()

        meaning = page.locator("#meaning", has_text="may not send yet")
        expect(meaning).to_be_visible()
        assert is_in_window(meaning)
        page.locator("h1").tap()
        expect(meaning).to_be_hidden()


def test_hidden_page_asks_nothing(shown: Page) -> None:
    """While nobody looks the service is not asked; afterwards figures go on."""
    asked: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    hide(shown, hidden=True)
    shown.wait_for_timeout(500)  # an answer under way may still come
    asked.clear()

    shown.wait_for_timeout(1_500)
    assert asked == []

    with shown.expect_request("**/v1/status"):
        hide(shown, hidden=False)


def test_outage_shows_and_passes(shown: Page, busy: Busy) -> None:
    """A database that stops is told in words, with its errors, and so is its return."""
    customers = shown.get_by_label("dimension customers")
    busy.postgres.stop()
    try:
        expect(shown.locator("#state-word")).to_have_text("Degraded")
        expect(shown.locator("#state-reasons")).to_contain_text("customers: the backend")
        expect(customers.locator(".mark").first).to_have_text(re.compile("breaker (half )?open"))
        expect(shown.get_by_label("dimension places").locator(".mark").first).to_have_text(
            "backend available"
        )
        errors = shown.locator("#errors li", has_text="backend_unavailable")
        expect(errors.first).to_contain_text("customers")
        expect(errors.first).to_contain_text(re.compile(r"\d keys"))
        assert min(contrasts(shown).values()) >= LEAST_CONTRAST
    finally:
        busy.postgres.start()

    expect(customers.locator(".mark").first).to_have_text("backend available")
    assert str(FIRST_NEW)[:5] not in shown.content()
    expect(shown.locator("#state-word")).to_have_text("Healthy")


def _with_an_error(status: Any) -> None:  # noqa: ANN401  # any JSON
    """A store was away."""
    error = {"code": "backend_unavailable", "detail": "no connection", "queries": 21, "keys": 1234}
    for dimension in status["dimensions"]:
        dimension["recent_errors"] = [error | {"first_ago_s": 95.0, "last_ago_s": 92.0}]


def _number(*, at_least: int = 0) -> re.Pattern[str]:
    return re.compile(r"^[1-9]" if at_least else r"^(< 0\.1|[\d.]+K?)$")
