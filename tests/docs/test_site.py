"""The built site: strict, complete without a network, searchable, and readable on a phone."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.docs.pages.blocks import ROOT
from tools.browser import running_browser

SIZES = ((1280, 900), (390, 844))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built strictly: a broken link or anchor is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = built(folder)
    assert done.returncode == 0, done.stderr
    return folder


def built(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build the site into the folder, as `make docs` does."""
    # With --quiet, MkDocs would also not count warnings, and never fail.
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder), *options]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all pages."""
    with running_browser() as browser:
        yield browser


def offline_page(browser: Browser, width: int, height: int, scheme: str) -> Page:
    """A tab without a network."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=True,
    )
    return context.new_page()


@pytest.mark.real_path
def test_site_builds_strictly(site: Path) -> None:
    """All links and anchors lead somewhere, and each page is in the navigation."""
    built = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    written = {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")}

    assert {page.with_suffix("") for page in written} <= built


@pytest.mark.full
@pytest.mark.parametrize("size", SIZES, ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_load_nothing(
    site: Path, browser: Browser, size: tuple[int, int], scheme: str
) -> None:
    """No page is wider than the screen, requests another host, or lacks a picture."""
    page = offline_page(browser, *size, scheme)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))

    faults = []
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        broken = page.evaluate(
            "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        if overflow > 0 or broken:
            faults.append((path.name, overflow, broken))

    assert faults == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.full
def test_search_works_from_a_folder(site: Path, browser: Browser) -> None:
    """The search finds a page without a server and without a network."""
    page = offline_page(browser, *SIZES[0], "light")
    page.goto((site / "index.html").as_uri())

    page.keyboard.press("/")
    page.keyboard.type("circuit breaker")

    expect(page.locator(".md-search-result__meta")).to_contain_text("matching documents")
    expect(page.locator(".md-search-result__link").first).to_be_visible()
