"""`/livez`, `/readyz`, `/startupz` and `/metrics`: for kubelets and monitors.

None of them asks a database: a dead one must not restart or hold up what waits for it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from aiohttp import web

from service.http.problem import RETRY_AFTER_S, problem_of_code
from service.http.readiness import Readiness

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Health:
    """Handles probes and scrapes."""

    readiness: Readiness
    metrics: Callable[[], bytes]

    async def livez(self, _request: web.Request) -> web.Response:
        """The event loop runs, or nobody could say so."""
        return _ok()

    async def startupz(self, _request: web.Request) -> web.Response:
        """Whoever can ask this is served; an executor must not wait for its database to start."""
        return _ok()

    async def readyz(self, _request: web.Request) -> web.Response:
        """Whether lookups may come: not draining, and every dimension known."""
        self.readiness.check_not_draining()
        reasons = self.readiness.undescribed()
        if not reasons:
            return _ok()
        told = "; ".join(f"{name}: {error.detail}" for name, error in sorted(reasons.items()))
        problem = problem_of_code(next(iter(reasons.values())).code, told)
        return replace(problem, status=503, retry_after_s=RETRY_AFTER_S).response()

    async def scrape(self, _request: web.Request) -> web.Response:
        """All metrics in the Prometheus text format."""
        return web.Response(body=self.metrics(), headers={"Content-Type": METRICS_TYPE})


def _ok() -> web.Response:
    return web.Response(text="ok\n")
