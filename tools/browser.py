"""Headless Chromium for the status page: the one on PATH, else installed from Debian.

Playwright only drives it: its own download is not available in closed networks.
"""

import os
import shutil
from collections.abc import Iterator
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
            executable_path=_chromium(), args=list(ARGUMENTS), headless=True
        )
        try:
            yield browser
        finally:
            browser.close()


def _chromium() -> str:
    with download_cache(os.environ):  # one at a time
        found = shutil.which(PROGRAM)
        if found is None:
            if os.geteuid() != 0:
                raise ToolUnavailable(f"no {PROGRAM}; run as root: apt-get install {PROGRAM}")
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            packages = (PROGRAM, "fonts-dejavu-core")  # without a font a page has no width
            install = ("install", "--yes", "--no-install-recommends", *packages)
            for arguments in (("update",), install):
                command = ["apt-get", *arguments]
                run_tool(command, Path("/"), environ=quiet, timeout_s=INSTALL_TIMEOUT_S)
            found = shutil.which(PROGRAM)
    if found is None:
        raise ToolUnavailable(f"{PROGRAM} is not on PATH, although apt-get has installed it")
    return found
