"""Fixtures of the end-to-end tests: Spark, sidecars, a database, a browser."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.end_to_end.sidecars import customers_sidecar
from tests.end_to_end.status_pages import Watched, opened_page, quiet_service
from tests.spark_session import spark_session
from tools.browser import running_browser
from tools.processes.postgres_server import Database, running_postgres
from tools.processes.sidecar_process import SidecarProcess

__all__ = ["spark_session"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: paths of sockets are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="sidelook-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def module_folder() -> Iterator[Path]:
    """A folder with a short path for all tests of a module."""
    with tempfile.TemporaryDirectory(prefix="sidelook-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A database for all tests of a module."""
    with running_postgres() as server:
        yield server.new_database()


@pytest.fixture(scope="session")
def sidecar_process() -> Iterator[SidecarProcess]:
    """The sidecar with customers, places and tiers that all tests share."""
    with tempfile.TemporaryDirectory(prefix="sidelook-", ignore_cleanup_errors=True) as name:
        sidecar = customers_sidecar(Path(name))
        with sidecar.running():
            yield sidecar


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for all tests of a module."""
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page."""
    with opened_page(browser) as page:
        yield page


@pytest.fixture(scope="module")
def quiet(module_folder: Path) -> Iterator[Watched]:
    """A sidecar with one dimension and a token, which answers few requests."""
    service = quiet_service(module_folder)
    with service.sidecar.running():
        yield service
