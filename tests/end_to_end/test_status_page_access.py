"""Who comes to the status page: with a token, for the first time, through a forwarded port."""

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Page, Route, expect

from tests.end_to_end.forwarded_port import forwarded_port
from tests.end_to_end.page_actions import PATIENCE_MS, enter_token
from tests.end_to_end.status_page_service import TOKEN, Watched
from tools.processes.sidecar_process import free_port
from tools.processes.until import until

NEWER_TOKEN = "newer-token-of-the-page"
ASKS_FOR_TOKEN = [
    "Sidelook",
    "A token is needed enter it to see the figures",
    "This service requires a token",
    "Show",
    "The token is kept in this page only, until it is closed.",
]

expect.set_options(timeout=PATIENCE_MS)


def test_page_before_the_token_asks_for_it_alone(page: Page, quiet: Watched) -> None:
    """Without the token there is no heading, no figure and no link; a wrong one is told."""
    page.goto(quiet.url)
    expect(page.locator("#state-word")).to_have_text("A token is needed")

    texts = page.locator("body").inner_text().split("\n")
    assert [text.strip() for text in texts if text.strip()] == ASKS_FOR_TOKEN
    enter_token(page, "wrong")
    expect(page.locator("#state-reasons")).to_have_text(" this token was refused")
    expect(page.get_by_role("heading")).to_have_text(["Sidelook"])
    expect(page.get_by_role("link")).to_have_count(0)


def test_refusal_takes_the_figures_away(page: Page, quiet: Watched) -> None:
    """Once its token is refused the page has nothing left but the request for another."""
    page.goto(quiet.url)
    enter_token(page, TOKEN)
    expect(page.locator(".card")).to_be_visible()

    page.route("**/v1/status", lambda route: route.fulfill(status=401))

    expect(page.locator("#token-form")).to_be_visible()
    expect(page.get_by_role("heading")).to_have_text(["Sidelook"])


def test_refused_token_may_be_entered_again(page: Page, quiet: Watched) -> None:
    """One that the sidecar learns of later is asked with again, when a person enters it again."""
    page.goto(quiet.url)
    enter_token(page, NEWER_TOKEN)
    expect(page.locator("#state-reasons")).to_have_text(" this token was refused")

    with _replaced_token(quiet):
        enter_token(page, NEWER_TOKEN)

        expect(page.locator("#state-word")).to_have_text("Healthy")
        expect(page.locator("#token-form")).to_be_hidden()


def test_refused_token_is_asked_with_once(page: Page, quiet: Watched) -> None:
    """The page does not ask again by itself: each refusal stands in the sidecar's log."""
    page.goto(quiet.url)
    enter_token(page, "wrong")
    expect(page.locator("#state-reasons")).to_have_text(" this token was refused")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.wait_for_timeout(2_500)  # two periods: for what must not come
    assert asked == []


def test_token_is_not_blamed_for_another(page: Page, quiet: Watched) -> None:
    """A refusal that comes after the next token was entered is of the token before."""
    page.goto(quiet.url)
    expect(page.locator("#state-word")).to_have_text("A token is needed")
    under_way: list[Route] = []

    def hold(route: Route) -> None:
        under_way.append(route)

    page.route("**/v1/status", hold, times=1)
    with page.expect_request("**/v1/status"):
        enter_token(page, "wrong")
    enter_token(page, TOKEN)

    under_way[0].fulfill(status=401)

    expect(page.locator("#state-word")).to_have_text("Healthy")


def test_refusal_ends_the_tries(page: Page, quiet: Watched) -> None:
    """A page that could not reach its sidecar, and then is refused, tells of no next try."""
    page.goto(quiet.url)
    enter_token(page, TOKEN)
    expect(page.locator(".card")).to_be_visible()
    page.route("**/v1/status", lambda route: route.abort())
    expect(page.locator("#state-since")).to_contain_text("Next attempt in")

    page.unroute_all()
    page.route("**/v1/status", lambda route: route.fulfill(status=401))

    expect(page.locator("#state-word")).to_have_text("A token is needed")
    expect(page.locator("#state-since")).to_be_hidden()


def test_newcomer_is_led(page: Page, quiet: Watched) -> None:
    """Before any lookup the page tells what to do, and that works; one is told as one."""
    page.goto(quiet.url)
    enter_token(page, TOKEN)
    expect(page.locator("#token-form")).to_be_hidden()
    expect(page.locator("#first-channel code")).to_contain_text(f'Sidecar("{quiet.url[:-1]}")')
    expect(page.locator("#no-errors")).to_contain_text("None since the start")

    said = _run(page.locator("#first-lookup code").inner_text())

    assert json.loads(said)["outcomes"] == ["fetched"]
    expect(page.locator("#first-lookup")).to_be_hidden()
    expect(page.locator(".meter").first).to_contain_text("1 entry, ")
    assert TOKEN not in page.content()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_forwarded_page_has_figures(page: Page, quiet: Watched, host: str) -> None:
    """As by `kubectl port-forward`, the page works by another port than the sidecar's own.

    While that leads nowhere it says since when, keeps the old figures, and goes on by itself.
    """
    port = free_port()
    with forwarded_port(quiet.http_port, port):
        page.goto(f"http://{host}:{port}/")
        enter_token(page, TOKEN)
        expect(page.locator("#state-word")).to_have_text("Healthy")

    expect(page.locator("#state-word")).to_have_text("Cannot be reached")
    expect(page.locator("#state-since")).to_contain_text(
        re.compile(r"since \d\d:\d\d:\d\d, for \d+ s; the figures below date from then")
    )
    expect(page.locator(".card")).to_have_count(1)

    with forwarded_port(quiet.http_port, port):
        expect(page.locator("#state-word")).to_have_text("Healthy")
        expect(page.locator("#state-since")).to_be_hidden()


@contextmanager
def _replaced_token(service: Watched) -> Iterator[None]:
    """The sidecar has another token meanwhile, as when its secret is rotated."""
    _write_token(service, NEWER_TOKEN)
    try:
        yield
    finally:
        _write_token(service, TOKEN)


def _write_token(service: Watched, token: str) -> None:
    """By renaming, and until the sidecar has noticed."""
    fresh = service.sidecar.folder / "fresh-token"
    fresh.write_text(token)
    fresh.chmod(0o400)
    fresh.rename(service.sidecar.folder / "token")
    until(lambda: _is_accepted(service, token))


def _is_accepted(service: Watched, token: str) -> bool:
    headers = {"Authorization": f"Bearer {token}"}
    request = Request(f"{service.url}v1/status", headers=headers)  # noqa: S310  # its own
    try:
        with urlopen(request, timeout=PATIENCE_MS / 1000):  # noqa: S310  # as above
            return True
    except HTTPError:
        return False


def _run(command: str) -> str:
    """What the command for `curl` brings; a fresh machine has none."""
    words = [word.replace("$TOKEN", TOKEN) for word in shlex.split(command)]
    curl, header, token, body, content, url = words
    assert (curl, header, body) == ("curl", "-H", "-d")
    name, _, value = token.partition(": ")
    request = Request(url, data=content.encode(), headers={name: value})  # noqa: S310  # its own
    with urlopen(request, timeout=PATIENCE_MS / 1000) as response:  # noqa: S310  # as above
        return str(response.read().decode())
