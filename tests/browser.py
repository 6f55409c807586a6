"""A real Chromium for tests of the page: the machine's own, else installed from Debian.

Never the download of a test library, which registries of a closed network do not have.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from demo.maven_libraries import download_cache
from tests.debian_tool import ToolUnavailable, run_tool

PROGRAM = "chromium"
INSTALL_TIMEOUT_S = 900
# It asks nobody but the page's own server for anything.
ARGUMENTS = (
    "--no-sandbox",  # tests run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A headless Chromium, closed in the end; raises ToolUnavailable where there can be none."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(chromium()), args=list(ARGUMENTS), headless=True
        )
        try:
            yield browser
        finally:
            browser.close()


def chromium(*, environ: Mapping[str, str] = os.environ) -> Path:
    """The program's path; it is installed first where it is missing, which takes root."""
    search = environ.get("PATH")
    if found := shutil.which(PROGRAM, path=search):
        return Path(found)
    with download_cache(environ):  # one at a time
        if not shutil.which(PROGRAM, path=search):
            _install(environ)
    if found := shutil.which(PROGRAM, path=search):
        return Path(found)
    raise ToolUnavailable(f"apt-get installed {PROGRAM}, but there is no such program on PATH")


def _install(environ: Mapping[str, str]) -> None:
    if not shutil.which("apt-get", path=environ.get("PATH")):
        raise ToolUnavailable(f"no {PROGRAM} on PATH, and no apt-get to install it with")
    if os.geteuid() != 0:
        raise ToolUnavailable(f"no {PROGRAM} on PATH; only root can install it: apt-get install it")
    packages = [PROGRAM, "fonts-dejavu-core"]  # without a font a page has no width
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "--yes", "--no-install-recommends", *packages],
    ):
        quiet = {**environ, "DEBIAN_FRONTEND": "noninteractive"}
        run_tool(command, Path("/"), environ=quiet, timeout_s=INSTALL_TIMEOUT_S)
