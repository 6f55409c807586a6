"""Headless Chromium for the status page: the one on PATH, else installed from Debian.

Playwright only drives it: its own download is not available in closed networks.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from demo.maven_libraries import download_cache
from tools.debian import ToolUnavailable, run_tool

PROGRAM = "chromium"
INSTALL_TIMEOUT_S = 900
# Send requests only to the server of the page.
ARGUMENTS = (
    "--no-sandbox",  # required for root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start a headless Chromium; raises ToolUnavailable if none can be installed."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium()), args=list(ARGUMENTS), headless=True
        )
        try:
            yield browser
        finally:
            browser.close()


def chromium(*, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the program, which is installed if it is missing; that requires root."""
    search = environ.get("PATH")
    if found := shutil.which(PROGRAM, path=search):
        return Path(found)
    with download_cache(environ):  # one at a time
        if not shutil.which(PROGRAM, path=search):
            _install(environ)
    if found := shutil.which(PROGRAM, path=search):
        return Path(found)
    raise ToolUnavailable(f"{PROGRAM} is not on PATH, although apt-get has installed it")


def _install(environ: Mapping[str, str]) -> None:
    if not shutil.which("apt-get", path=environ.get("PATH")):
        raise ToolUnavailable(
            f"{PROGRAM} is not on PATH, and without apt-get it cannot be installed"
        )
    if os.geteuid() != 0:
        raise ToolUnavailable(f"{PROGRAM} is not on PATH; run as root: apt-get install {PROGRAM}")
    packages = [PROGRAM, "fonts-dejavu-core"]  # without a font a page has no width
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
    ):
        quiet = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
        run_tool(command, Path("/"), environ=quiet, timeout_s=INSTALL_TIMEOUT_S)
