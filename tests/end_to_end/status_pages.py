"""The status page for tests: its sidecars, the actions of people and networks, and its checks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from playwright.sync_api import Browser, Page, Route, ViewportSize, expect

from tests.end_to_end.sidecars import configured, parquet, postgres, running_load, url_of
from tools.processes.postgres_server import PostgresServer, running_postgres
from tools.processes.sidecar_process import SidecarProcess, free_port

PATIENCE_MS = 30_000
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
CHANNELS = 300  # of `places`
TOKEN = "token-of-the-page"
STATUS = "**/v1/status"
_CHECKS = Path(__file__).with_name("page_checks.js").read_text().rstrip(";\n")
# Chromium itself logs a server that is away or refuses; the page cannot prevent that.
_NETWORK = "Failed to load resource"
_PLACES = pa.table({"id": pa.array(range(5), pa.int64()), "place": list("abcde")})

expect.set_options(timeout=PATIENCE_MS)


@dataclass(frozen=True, slots=True)
class Watched:
    """A sidecar with the address of its page."""

    sidecar: SidecarProcess
    url: str


@dataclass(frozen=True, slots=True)
class Busy:
    """A sidecar under load, with its database."""

    watched: Watched
    postgres: PostgresServer


@contextmanager
def busy_service(folder: Path) -> Iterator[Busy]:
    """A running sidecar under load."""
    with running_postgres() as server:
        database = server.new_database()
        database.execute(
            "CREATE TABLE customers (id bigint PRIMARY KEY, name text)",
            "INSERT INTO customers SELECT id, 'name ' || id FROM generate_series(0, 40) id",
        )
        hasty = {"timeout": "1s", "retry": {"max_retries": 0}}
        customers = postgres(database.dsn(), "public.customers", **hasty)
        places = parquet(folder, "places", _PLACES, "id", timeout="20s")
        watched = _watched(folder, {"customers": customers, "places": places})
        load = ("tests.end_to_end.page_load", url_of(watched.sidecar), str(CHANNELS))
        with watched.sidecar.running(), running_load(*load):
            yield Busy(watched, server)


def quiet_service(folder: Path) -> Watched:
    """A sidecar with a token and without load, not started."""
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o400)
    places = parquet(folder, "places", _PLACES, "id", timeout="20s")
    return _watched(folder, {"places.of-2_kinds": places}, auth={"token_file": str(token)})


def _watched(folder: Path, dimensions: dict[str, object], **settings: object) -> Watched:
    address = f"127.0.0.1:{free_port()}"
    environ = {"SIDELOOK_LISTEN__HTTP": address}
    sidecar = configured(folder, dimensions, environ=environ, **settings)
    return Watched(sidecar, f"http://{address}/")


@contextmanager
def opened_page(
    browser: Browser, *, viewport: ViewportSize = WIDE, is_phone: bool = False
) -> Iterator[Page]:
    """An empty page; errors and warnings in its console fail the test."""
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


def change_status(page: Page, change: Callable[[Any], object]) -> None:
    """Let the page receive changed responses of the service from now on."""

    def fulfil(route: Route) -> None:
        status = route.fetch().json()
        change(status)
        route.fulfill(json=status)

    page.route(STATUS, fulfil)


def hide(page: Page, *, hidden: bool) -> None:
    """Hide the tab of the page, or show it again."""
    page.evaluate(
        "(isHidden) => { Object.defineProperty(document, 'hidden',"
        " { configurable: true, get: () => isHidden });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


def enter_token(page: Page, token: str) -> None:
    """Type a token into the form of the page."""
    page.locator("#token-form input").fill(token)
    page.locator("#token-form button").press("Enter")


def check(page: Page, name: str) -> Any:  # noqa: ANN401  # any JSON
    """The result of a function in `page_checks.js`."""
    return page.evaluate(f"{_CHECKS}.{name}()")
