"""What is asked of a page in the browser itself: contrast, focus, names.

The questions stand in `page_checks.js`; what the answers must be is the tests' business.
"""

from pathlib import Path

from playwright.sync_api import Locator, Page

_CHECKS = Path(__file__).with_suffix(".js").read_text().rstrip(";\n")


def contrasts(page: Page) -> dict[str, float]:
    """{text: its contrast to what lies under it}, of all texts that are seen."""
    return page.evaluate(f"{_CHECKS}.contrasts()")


def focusable(page: Page) -> int:
    """How many elements that are seen can have the focus by Tab."""
    return page.evaluate(f"{_CHECKS}.focusable()")


def watch_focus(page: Page) -> None:
    """Have the page note from now on who gets the focus."""
    page.evaluate(f"{_CHECKS}.outlines()")


def outlines(page: Page) -> dict[str, str]:
    """{element that had the focus: the style of its outline then}."""
    return page.evaluate("window.outlines")


def problems(page: Page) -> list[str]:
    """What is wrong with names, headings, landmarks and labels, in words."""
    return page.evaluate(f"{_CHECKS}.problems()")


def is_in_window(box: Locator) -> bool:
    """Whether nothing of it is cut off by the window."""
    return box.evaluate(
        "(box) => { const { left, top, right, bottom } = box.getBoundingClientRect();"
        " return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight; }"
    )
