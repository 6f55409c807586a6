"""What people and networks do to a page: it is opened, hidden, and hears other answers.

What the page must show then is the tests' business.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Route, ViewportSize

PATIENCE_MS = 30_000
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# What Chromium itself says of a server that is away or refuses: the page cannot keep it from that.
_NETWORK = "Failed to load resource"


@contextmanager
def opened_page(
    browser: Browser, *, viewport: ViewportSize = WIDE, is_phone: bool = False
) -> Iterator[Page]:
    """An empty page; whatever it complains of until its end is an error."""
    page = browser.new_page(viewport=viewport, has_touch=is_phone, is_mobile=is_phone)
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None,
    )
    yield page
    page.close()
    assert [said for said in complaints if _NETWORK not in said] == []


def change_status(page: Page, change: Callable[[Any], None]) -> None:
    """Let the page hear from now on what happens rarely: the service's answers, changed."""

    def fulfil(route: Route) -> None:
        status = route.fetch().json()
        change(status)
        route.fulfill(json=status)

    page.route("**/v1/status", fulfil)


def hide(page: Page, *, hidden: bool) -> None:
    """Let the page believe that its tab is behind another, or in front again."""
    page.evaluate(
        "(isHidden) => { Object.defineProperty(document, 'hidden',"
        " { configurable: true, get: () => isHidden });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def enter_token(page: Page, token: str) -> None:
    """Give the page the token that it asks for, as a person does."""
    page.get_by_label("This service requires a token").fill(token)
    page.get_by_role("button", name="Show").press("Enter")
