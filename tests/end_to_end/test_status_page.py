"""The status page in a real Chromium, over a real sidecar with real load."""

import json
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import running_browser
from tests.end_to_end.page_checks import (
    contrasts,
    focusable,
    outlines,
    problems,
    watch_focus,
)
from tests.end_to_end.page_load import FIRST_NEW, STRANGE_ORIGIN
from tests.end_to_end.status_page_service import (
    CHANNELS,
    TOKEN,
    Busy,
    Watched,
    busy_service,
    quiet_service,
)

PATIENCE_MS = 30_000
PHONE = {"width": 390, "height": 844}
LEAST_CONTRAST = 4.5
# What Chromium itself says of a server that is away or refuses: the page cannot keep it from that.
NETWORK = "Failed to load resource"

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets want it."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def busy(folder: Path) -> Iterator[Busy]:
    """A sidecar under load, with 300 channels of one dimension and two of another."""
    with busy_service(folder) as service:
        yield service


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; whatever it complains of until its end fails the test."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None,
    )
    yield page
    page.close()
    assert [said for said in complaints if NETWORK not in said] == []


@pytest.fixture
def shown(page: Page, busy: Busy) -> Page:
    """The page of the busy sidecar, with figures."""
    page.goto(busy.watched.url)
    expect(page.locator(".card")).to_have_count(2)
    return page


def test_figures_move(shown: Page) -> None:
    """Lookups, queries, keys per query and the hit ratio are shown, and totals grow."""
    card = shown.get_by_label("dimension customers")
    figure = card.locator(".figure", has_text="lookups/s")
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

    uptime = shown.locator("#vitals").inner_text()
    expect(shown.locator("#vitals")).not_to_have_text(uptime)
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
    shown.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    shown.locator("details", has_text="places").locator("summary").click()
    expect(shown.locator("details", has_text="places").locator("li")).to_have_count(CHANNELS)

    width = shown.evaluate("document.documentElement.scrollWidth")

    assert width <= PHONE["width"]


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


def test_hidden_page_asks_nothing(shown: Page) -> None:
    """While nobody looks the service is not asked; afterwards figures go on."""
    asked: list[str] = []
    shown.on("request", lambda request: asked.append(request.url))
    _hide(shown, hidden=True)
    shown.wait_for_timeout(500)  # an answer under way may still come
    asked.clear()

    shown.wait_for_timeout(2_500)
    assert asked == []

    with shown.expect_request("**/v1/status"):
        _hide(shown, hidden=False)


def test_outage_shows_and_passes(shown: Page, busy: Busy) -> None:
    """A database that stops is told in words, with its errors, and so is its return."""
    customers = shown.get_by_label("dimension customers")
    busy.postgres.stop()
    try:
        expect(shown.locator("#state-word")).to_have_text("Degraded")
        expect(shown.locator("#state-reasons")).to_contain_text("customers: the store")
        expect(customers.locator(".mark").first).to_have_text(re.compile("breaker (half )?open"))
        expect(shown.get_by_label("dimension places").locator(".mark").first).to_have_text(
            "store answers"
        )
        errors = shown.locator("#errors li", has_text="upstream_unavailable")
        expect(errors.first).to_contain_text("customers")
        expect(errors.first).to_contain_text(re.compile(r"\d lookups"))
        assert min(contrasts(shown).values()) >= LEAST_CONTRAST
    finally:
        busy.postgres.start()

    expect(shown.locator("#state-word")).to_have_text("Healthy", timeout=2 * PATIENCE_MS)
    expect(customers.locator(".mark").first).to_have_text("store answers")
    assert str(FIRST_NEW)[:5] not in shown.content()


def test_dead_sidecar_is_told_and_found_again(page: Page, folder: Path) -> None:
    """It says since when the sidecar is away, keeps the old figures, and goes on by itself."""
    quiet = _quiet(folder, "gone")
    with quiet.sidecar.running(ends_by=signal.SIGKILL):
        page.goto(quiet.url)
        _enter(page, TOKEN)
        expect(page.locator("#state-word")).to_have_text("Healthy")

    expect(page.locator("#state-word")).to_have_text("Cannot be reached")
    expect(page.locator("#state-since")).to_contain_text(
        re.compile(r"since \d\d:\d\d:\d\d, for \d+ s; the figures below are from then")
    )
    expect(page.locator(".card")).to_have_count(1)

    quiet.sidecar.socket.unlink(missing_ok=True)
    with quiet.sidecar.running():
        expect(page.locator("#state-word")).to_have_text("Healthy")
        expect(page.locator("#state-since")).to_be_hidden()


def test_newcomer_is_led(page: Page, folder: Path) -> None:
    """With a token, and before any lookup, the page tells what to do, and that works."""
    quiet = _quiet(folder, "new")
    with quiet.sidecar.running():
        page.goto(quiet.url)
        expect(page.locator("#state-word")).to_have_text("A token is needed")
        _enter(page, "wrong")
        expect(page.locator("#state-reasons")).to_have_text(" this one was refused")
        _enter(page, TOKEN)
        expect(page.locator("#token-form")).to_be_hidden()
        expect(page.locator("#first-channel code")).to_contain_text(f'Sidecar("{quiet.url[:-1]}")')
        expect(page.locator("#no-errors")).to_contain_text("None since the start")

        said = _run(page.locator("#first-lookup code").inner_text())

        assert json.loads(said)["outcomes"] == ["fetched"]
        expect(page.locator("#first-lookup")).to_be_hidden()
        assert TOKEN not in page.content()


def _quiet(folder: Path, name: str) -> Watched:
    own = folder / name
    own.mkdir()
    return quiet_service(own)


def _enter(page: Page, token: str) -> None:
    page.get_by_label("This service asks for a token").fill(token)
    page.get_by_role("button", name="Show").press("Enter")


def _run(command: str) -> str:
    """What the command for `curl` brings; a fresh machine has none."""
    words = [word.replace("$TOKEN", TOKEN) for word in shlex.split(command)]
    curl, header, token, body, content, url = words
    assert (curl, header, body) == ("curl", "-H", "-d")
    name, _, value = token.partition(": ")
    request = Request(url, data=content.encode(), headers={name: value})  # noqa: S310  # its own
    with urlopen(request, timeout=PATIENCE_MS / 1000) as response:  # noqa: S310  # as above
        return str(response.read().decode())


def _number(*, at_least: int = 0) -> re.Pattern[str]:
    return re.compile(r"^[1-9]" if at_least else r"^(< 0\.1|[\d.]+K?)$")


def _hide(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        "(isHidden) => { Object.defineProperty(document, 'hidden',"
        " { configurable: true, get: () => isHidden });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )
