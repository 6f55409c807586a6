"""`/livez`, `/readyz`, `/startupz` and `/metrics`: for kubelets and monitors.

None of them asks a database: a dead one must not restart what waits for it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from aiohttp import web

from lookup_core.errors import ErrorCode
from service.http.problem import RETRY_AFTER_S, problem_of_code
from service.http.readiness import Readiness

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_LOADED = ErrorCode.TABLE_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Health:
    """Handles probes and scrapes."""

    readiness: Readiness
    metrics: Callable[[], bytes]

    async def livez(self, _request: web.Request) -> web.Response:
        """The event loop runs, or nobody could say so."""
        return _ok()

    async def startupz(self, _request: web.Request) -> web.Response:
        """Whether the executor may start: tables that are to be held whole are loaded.

        It does not wait for the database of any other dimension.
        """
        reasons = self.readiness.cold()
        return _not_yet(_NOT_LOADED, reasons) if reasons else _ok()

    async def readyz(self, _request: web.Request) -> web.Response:
        """Whether lookups may come: not draining, and every dimension known and started."""
        self.readiness.check_not_draining()
        undescribed = self.readiness.undescribed()
        unknown = {name: error.detail for name, error in undescribed.items()}
        reasons = self.readiness.cold() | unknown
        if not reasons:
            return _ok()
        codes = [error.code for error in undescribed.values()]
        return _not_yet(next(iter(codes), _NOT_LOADED), reasons)

    async def scrape(self, _request: web.Request) -> web.Response:
        """All metrics in the Prometheus text format."""
        return web.Response(body=self.metrics(), headers={"Content-Type": METRICS_TYPE})


def _ok() -> web.Response:
    return web.Response(text="ok\n")


def _not_yet(code: ErrorCode, reasons: Mapping[str, str]) -> web.Response:
    told = "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items()))
    problem = problem_of_code(code, told)
    return replace(problem, status=503, retry_after_s=RETRY_AFTER_S).response()
