"""The status page in a real Chromium: under load, with a token, and with unusual responses."""

import json
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, Route, expect

from tests.end_to_end.page_load import FIRST_NEW, STRANGE_ORIGIN
from tests.end_to_end.status_pages import (
    CHANNELS,
    PATIENCE_MS,
    PHONE,
    STATUS,
    TOKEN,
    Busy,
    Watched,
    busy_service,
    change_status,
    check,
    enter_token,
    hide,
)
from tests.shown_shares import SHOWN_SHARES
from tools.processes.until import until

LEAST_CONTRAST = 4.5
NOTES = [re.compile(end) for end in ("in total$", "% overall$", "in total$", "overall$")]
NUMBER, POSITIVE = re.compile(r"^(< 0\.1|[\d.]+K?)$"), re.compile(r"^[1-9]")
NEWER_TOKEN = "newer-token-of-the-page"
INHERITED = ["constructor", "toString", "__proto__"]  # properties of every object of JavaScript
Change = Callable[[Any], object]  # of the JSON of `/v1/status`


@pytest.fixture(scope="module")
def busy() -> Iterator[Busy]:
    """A sidecar under load, with 300 channels of one dimension and two of another."""
    with (
        tempfile.TemporaryDirectory(prefix="sidelook-", ignore_cleanup_errors=True) as folder,
        busy_service(Path(folder)) as service,
    ):
        yield service


@pytest.fixture
def shown(page: Page, busy: Busy) -> Page:
    """The page of the busy sidecar, with figures."""
    page.goto(busy.watched.url)
    expect(page.locator(".card")).to_have_count(2)
    return page


@pytest.fixture
def calm(page: Page, quiet: Watched) -> Page:
    """The page of the sidecar without load, with figures."""
    page.goto(quiet.url)
    enter_token(page, TOKEN)
    expect_state(page, "Healthy")
    return page


def expect_state(page: Page, word: str) -> None:
    """Wait for the word of the state."""
    expect(page.locator("#state-word")).to_have_text(word)


def test_figures_move(shown: Page) -> None:
    """Lookups, queries, keys per query and the hit ratio are shown, and totals grow."""
    card = shown.get_by_label("dimension customers")
    figure = card.locator(".figure", has_text="keys/s")
    expect(figure.locator("b")).to_have_text(POSITIVE)
    first = figure.locator("small").inner_text()

    expect(figure.locator("small")).not_to_have_text(first)
    ratio = card.locator(".figure", has_text="hit ratio").locator("b")
    expect(ratio).to_have_text(re.compile(r"^[1-9]\d?(\.\d)? %$"))
    for name in ("queries/s", "keys per query"):
        expect(card.locator(".figure", has_text=name).locator("b")).to_have_text(NUMBER)
    expect(card.locator(".outcomes")).to_contain_text(re.compile(r"hit [\d.]+K?/s"))
    expect(card.locator(".figure small")).to_have_text(NOTES)
    expect_state(shown, "Healthy")
    expect(shown.locator("#state-reasons")).to_have_text("both dimensions are available")


def test_lookups_in_shared_memory_are_shown(shown: Page) -> None:
    """The card has the size of the shared cache and its keys, the channels have theirs."""
    use = re.compile(r"shared memory[\d.]+ [KM]iB, [\d.,KM]+ keys looked up by workers")
    records = re.compile(r" credit unused · [\d.,KM]+ keys from shared memory$")

    expect(shown.locator('.card[aria-label="dimension customers"] .facts')).to_have_text(use)
    customers = shown.locator(".group", has_text="customers")
    expect(customers.locator("summary .records")).to_have_text(records)
    expect(customers.locator(".channels .records")).to_have_text([records, records])


def test_charts_have_the_last_minutes(shown: Page) -> None:
    """A card has a chart of the samples of the service, with its peak in words."""
    chart = shown.get_by_label("dimension customers").locator("figure")

    expect(chart.locator("path")).to_have_attribute("d", re.compile("^M0 64L.+Z$"))
    expect(chart.locator("figcaption")).to_have_text(
        re.compile(r"^keys per second in the last \d+ \w+( \d+ s)?, at most [1-9][\d.]*K?$")
    )


def test_ended_streams_stay_visible(shown: Page) -> None:
    """A stream between two micro-batches is shown with its last figures."""
    ended = {
        "dimension": "weather",
        "origin": STRANGE_ORIGIN,
        "channels": 2,
        "keys": 20_000,
        "watermark_ms": None,
        "ended_ago_s": 4.0,
    }

    def between_batches(status: Any) -> None:  # noqa: ANN401  # any JSON
        status.update(channels=[], ended_streams=[ended])

    change_status(shown, between_batches)

    streams = shown.locator("#ended-streams li")
    expect(streams).to_have_text(
        [f"weatherended 4 s ago{STRANGE_ORIGIN}no watermark yet20,000 keys of 2 channels"]
    )
    overview = shown.locator("#overview .figure", has_text="channels")
    expect(overview.locator("small")).to_have_text("last one 4 s ago")


def test_texts_of_others_are_no_markup(shown: Page) -> None:
    """The origin that a client sends is shown as text."""
    origins = shown.locator("details", has_text="customers").locator(".origin")

    expect(origins).to_have_text([STRANGE_ORIGIN, "task 0"])
    assert shown.locator("#channels img").count() == 0


def test_hundreds_of_channels_stay_usable(shown: Page) -> None:
    """Channels are one line with sums; a key opens them, and they stay open while figures move."""
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
    """Tab alone reaches each control, and the focus is visible."""
    shown.locator("details", has_text="places").locator("summary").press("Enter")
    wanted = check(shown, "focusable")
    assert wanted >= 8

    check(shown, "outlines")
    for _ in range(wanted + 2):  # once round, past the browser's own bar
        shown.keyboard.press("Tab")

    seen = shown.evaluate("window.outlines")
    assert len(seen) == wanted
    assert "none" not in seen.values()


def test_phone_scrolls_one_way(shown: Page) -> None:
    """At 390 pixels nothing exceeds the screen, and the name of a dimension has one line."""
    shown.set_viewport_size(PHONE)
    shown.locator("details", has_text="places").locator("summary").click()
    expect(shown.locator("details", has_text="places").locator("li")).to_have_count(CHANNELS)
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    change_status(shown, with_an_error)

    error = shown.locator("#errors li", has_text="backend_unavailable").first
    expect(error.locator("p")).to_have_text("no connection")
    lines = "(name) => name.offsetHeight / parseFloat(getComputedStyle(name).lineHeight)"
    assert error.locator("b").evaluate(lines) < 1.5


def test_shares_are_rounded(shown: Page) -> None:
    """Shares are rounded half up, and neither to 0 % nor to 100 % unless exact."""
    cases = [*SHOWN_SHARES, (6, 5, "100 %")]

    found = [shown.evaluate(f"percent({part}, {whole})") for part, whole, _ in cases]

    assert found == [text for *_, text in cases]


@pytest.mark.parametrize(
    ("scheme", "ground"), [("light", "rgb(244, 245, 247)"), ("dark", "rgb(14, 19, 25)")]
)
def test_texts_have_contrast(shown: Page, scheme: Any, ground: str) -> None:  # noqa: ANN401  # a literal
    """Each text has a contrast of 4.5 : 1 in both colour schemes."""
    shown.emulate_media(color_scheme=scheme)

    ratios = check(shown, "contrasts")

    assert shown.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    assert len(ratios) > 40
    assert {text: ratio for text, ratio in ratios.items() if ratio < LEAST_CONTRAST} == {}


def test_structure_is_accessible(shown: Page) -> None:
    """Names, headings, landmarks and labels are complete."""
    assert check(shown, "problems") == []


def test_hidden_page_asks_nothing(shown: Page) -> None:
    """A hidden page sends no request, and continues when it is shown."""
    asked: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    hide(shown, hidden=True)
    shown.wait_for_timeout(500)  # a request may be under way
    asked.clear()

    shown.wait_for_timeout(1_500)  # more than a period, in which no request may come
    assert asked == []

    with shown.expect_request(STATUS):
        hide(shown, hidden=False)


def test_outage_shows_and_passes(shown: Page, busy: Busy) -> None:
    """A stopped database is shown with its errors, and so is its return."""
    customers = shown.get_by_label("dimension customers")
    busy.postgres.stop()
    try:
        expect_state(shown, "Degraded")
        expect(shown.locator("#state-reasons")).to_contain_text("customers: ")
        expect(customers.locator(".mark").first).to_have_text(re.compile("breaker (half )?open"))
        places = shown.get_by_label("dimension places")
        expect(places.locator(".mark").first).to_have_text("backend available")
        errors = shown.locator("#errors li", has_text="backend_unavailable")
        expect(errors.first).to_contain_text("customers")
        expect(errors.first).to_contain_text(re.compile(r"\d keys"))
        assert min(check(shown, "contrasts").values()) >= LEAST_CONTRAST
    finally:
        busy.postgres.start()

    expect(customers.locator(".mark").first).to_have_text("backend available")
    assert str(FIRST_NEW)[:5] not in shown.content()
    expect_state(shown, "Healthy")


# Tokens and newcomers


def test_page_before_the_token_asks_for_it_alone(page: Page, quiet: Watched) -> None:
    """Without the token the page has no figure and no link; a wrong one is reported."""
    page.goto(quiet.url)
    expect_state(page, "A token is needed")

    refuse_token(page, "wrong")

    expect(page.locator("main")).to_be_hidden()
    expect(page.get_by_role("heading")).to_have_text(["Sidelook"])
    expect(page.get_by_role("link")).to_have_count(0)


def test_refused_token_is_sent_once(page: Page, quiet: Watched) -> None:
    """A refused token is sent again only when a person enters it again."""
    page.goto(quiet.url)
    refuse_token(page, NEWER_TOKEN)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(2_500)  # two periods, in which no request may come
    assert asked == []

    with replaced_token(quiet):
        enter_token(page, NEWER_TOKEN)

        expect_state(page, "Healthy")
        expect(page.locator("#token-form")).to_be_hidden()


def test_token_is_not_blamed_for_another(page: Page, quiet: Watched) -> None:
    """A refusal that arrives after the next token was entered belongs to the former one."""
    page.goto(quiet.url)
    expect_state(page, "A token is needed")
    under_way: list[Route] = []

    def hold(route: Route) -> None:
        under_way.append(route)

    page.route(STATUS, hold, times=1)
    with page.expect_request(STATUS):
        enter_token(page, "wrong")
    enter_token(page, TOKEN)

    under_way[0].fulfill(status=401)

    expect_state(page, "Healthy")


def test_unreachable_page_keeps_its_figures(calm: Page) -> None:
    """Without the sidecar the page keeps the old figures and their time; a refusal removes them."""
    calm.route(STATUS, lambda route: route.abort())
    expect_state(calm, "Cannot be reached")
    since = calm.locator("#state-since")
    expect(since).to_contain_text(
        re.compile(r"since \d\d:\d\d:\d\d, for \d+ s; the figures below date from then")
    )
    expect(calm.locator(".card")).to_have_count(1)
    expect(since).to_contain_text("Next attempt in")
    calm.unroute_all()
    expect_state(calm, "Healthy")
    expect(since).to_be_hidden()

    calm.route(STATUS, lambda route: route.fulfill(status=401))

    expect_state(calm, "A token is needed")
    expect(since).to_be_hidden()
    expect(calm.get_by_role("heading")).to_have_text(["Sidelook"])


def test_newcomer_is_led(calm: Page, quiet: Watched) -> None:
    """Before any lookup the page shows a command for one, and the command works."""
    expect(calm.locator("#first-lookup code")).to_contain_text(quiet.url)
    expect(calm.locator("#no-errors")).to_contain_text("None since the start")

    printed = run_curl(calm.locator("#first-lookup code").inner_text())

    assert json.loads(printed)["outcomes"] == ["fetched"]
    expect(calm.locator("#first-lookup")).to_be_hidden()
    expect(calm.locator(".card .facts")).to_contain_text("1 entry, ")
    assert TOKEN not in calm.content()


def refuse_token(page: Page, token: str) -> None:
    """Enter a token that the sidecar refuses."""
    enter_token(page, token)
    expect(page.locator("#state-reasons")).to_contain_text("refused")


@contextmanager
def replaced_token(service: Watched) -> Iterator[None]:
    """Give the sidecar another token, as a rotation of its secret does."""
    write_token(service, NEWER_TOKEN)
    try:
        yield
    finally:
        write_token(service, TOKEN)


def write_token(service: Watched, token: str) -> None:
    """Replace the file, and wait until the sidecar accepts the token."""
    fresh = service.sidecar.folder / "fresh-token"
    fresh.write_text(token)
    fresh.chmod(0o400)
    fresh.rename(service.sidecar.folder / "token")
    until(lambda: is_accepted(service, token))


def is_accepted(service: Watched, token: str) -> bool:
    """Whether the sidecar accepts the token."""
    headers = {"Authorization": f"Bearer {token}"}
    request = Request(f"{service.url}v1/status", headers=headers)  # noqa: S310  # its own
    try:
        with urlopen(request, timeout=PATIENCE_MS / 1000):  # noqa: S310  # as above
            return True
    except HTTPError:
        return False


def run_curl(command: str) -> str:
    """The output of a command for `curl`, without curl."""
    words = [word.replace("$TOKEN", TOKEN) for word in shlex.split(command)]
    curl, header, token, body, content, url = words
    assert (curl, header, body) == ("curl", "-H", "-d")
    name, _, value = token.partition(": ")
    request = Request(url, data=content.encode(), headers={name: value})  # noqa: S310  # its own
    with urlopen(request, timeout=PATIENCE_MS / 1000) as response:  # noqa: S310  # as above
        return str(response.read().decode())


# Unusual responses


def with_an_error(status: Any) -> None:  # noqa: ANN401  # any JSON
    """Add a failure of the backend."""
    error = {"code": "backend_unavailable", "detail": "no connection", "queries": 21, "keys": 1234}
    for dimension in status["dimensions"]:
        dimension["recent_errors"] = [error | {"first_ago_s": 95.0, "last_ago_s": 92.0}]


def with_inherited_names(status: Any) -> None:  # noqa: ANN401  # any JSON
    """Dimensions have the names of properties of all objects."""
    (dimension,) = status["dimensions"]
    status["dimensions"] = [dimension | {"name": name} for name in INHERITED]


def with_two_reasons(status: Any) -> None:  # noqa: ANN401  # any JSON
    """Two dimensions share a warning, and one has information."""
    with_inherited_names(status)
    warning = {"severity": "warning", "code": "not_ready", "text": "its table is loaded"}
    info = {"severity": "info", "code": "feed_error", "text": "the change feed failed: cut"}
    status["health"] = {
        "state": "degraded",
        "summary": "2 of 2 dimensions affected",
        "reasons": [warning | {"dimensions": ["constructor", "b"]}, info | {"dimensions": ["b"]}],
    }


def with_isolated_breaker(status: Any) -> None:  # noqa: ANN401  # any JSON
    """A newer version has another state of the breaker."""
    for dimension in status["dimensions"]:
        dimension["backend"]["breaker"] = "isolated"


def with_private_cache(status: Any) -> None:  # noqa: ANN401  # any JSON
    """Workers cannot share memory with the sidecar."""
    status["dimensions"][0]["cache"]["shared"]["why_private"] = "/s is full; raise it"


def with_unaudited_feed(status: Any) -> None:  # noqa: ANN401  # any JSON
    """The audit of the feed is off."""
    with_incomplete_feed(status)
    status["dimensions"][0]["freshness"]["feed"] |= {"state": "live", "is_audited": False}


def with_incomplete_feed(status: Any) -> None:  # noqa: ANN401  # any JSON
    """An audit found a change that the feed omitted."""
    feed: dict[str, object] = {
        "state": "incomplete",
        "watermark_ms": None,
        "splits": [],
        "last_error": None,
        "is_audited": True,
        "audited_keys": {"agreed": 1_200, "suspect": 34, "contradicted": 2},
    }
    status["dimensions"][0]["freshness"]["feed"] = feed


FACTS, STATE, REASONS = ".card .facts", "#state-word", "#state-reasons"


@pytest.mark.parametrize(
    ("change", "texts"),
    [
        (with_inherited_names, {".card h3": INHERITED}),
        (
            with_two_reasons,
            {STATE: "Degraded", REASONS: "constructor, b: its table is loaded"},
        ),
        (with_private_cache, {FACTS: re.compile("shared memorynot shared: /s is full; raise it")}),
        (
            with_incomplete_feed,
            {
                ".card .refresh .mark.bad": "incomplete",
                ".card .refresh .title small": "no event time yet, 1,234 keys audited (2 wrong)",
            },
        ),
        (
            with_unaudited_feed,
            {".card .refresh .title small": "no event time yet, not audited"},
        ),
        (with_isolated_breaker, {".card .mark >> nth=0": "breaker isolated"}),
    ],
)
def test_unusual_values_are_shown(calm: Page, change: Change, texts: dict[str, Any]) -> None:
    """Independent counts, inherited property names and unknown states are shown as they are."""
    change_status(calm, change)

    for locator, text in texts.items():
        expect(calm.locator(locator)).to_have_text(text)


@pytest.mark.parametrize("body", ["<p>Soon here</p>", "null", '{"dimensions": []}'])
def test_other_response_is_reported(calm: Page, body: str) -> None:
    """A response that is no whole status is not shown; the page continues with the next one."""
    calm.route(STATUS, lambda route: route.fulfill(body=body))
    expect_unreadable(calm)

    calm.unroute_all()

    expect_state(calm, "Healthy")
    expect(calm.locator("#state-since")).to_be_hidden()
    expect(calm.locator(".card")).to_be_visible()


def expect_unreadable(page: Page) -> None:
    """Wait for the state of a response that cannot be read."""
    expect_state(page, "Cannot be read")
    expect(page.locator("#state-reasons")).to_contain_text("reloading the page may help")
    expect(page.locator("#state-since")).to_have_text(
        re.compile(r"^(Next attempt in \d+ s\.|Trying)")
    )
    expect(page.locator("main")).to_be_hidden()
    expect(page.locator("#token-form")).to_be_hidden()
