"""What the end-to-end tests share: a Spark session, sidecars, a database, a browser."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.end_to_end.page_actions import opened_page
from tests.end_to_end.parquet_sidecar import parquet_sidecar
from tests.end_to_end.status_page_service import Watched, quiet_service
from tests.spark_session import spark_session
from tools.browser import running_browser
from tools.processes.postgres_server import Database, running_postgres
from tools.processes.sidecar_process import SidecarProcess

__all__ = ["sidecar_process", "spark_session"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name, as paths of sockets are short."""
    with tempfile.TemporaryDirectory(prefix="sidelook-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """One for all tests of a module."""
    with running_postgres() as server:
        yield server.new_database()


@pytest.fixture(scope="session")
def sidecar_process() -> Iterator[SidecarProcess]:
    """The sidecar of this run."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    with parquet_sidecar(folder) as sidecar:
        yield sidecar
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests."""
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page."""
    with opened_page(browser) as page:
        yield page


@pytest.fixture(scope="module")
def quiet() -> Iterator[Watched]:
    """A sidecar with one dimension, which asks for a token, and that few ask for anything."""
    # Sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="sidelook-") as folder:
        service = quiet_service(Path(folder))
        with service.sidecar.running():
            yield service
