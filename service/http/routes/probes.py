"""Probes and metrics: `/livez`, `/readyz`, `/startupz` and `/metrics`.

No probe queries a backend: an outage of a database must not restart the sidecar.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from lookup_core.errors import ErrorCode, of_dimension
from service.http.problem import Problem
from service.http.readiness import Readiness

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_LOADED = ErrorCode.TABLE_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Probes:
    """Handlers of the probes and of the metrics scrape."""

    readiness: Readiness
    metrics: Callable[[], bytes]

    async def livez(self, _request: web.Request) -> web.Response:
        """Always ok: a reply shows that the event loop runs."""
        return _ok()

    async def startupz(self, _request: web.Request) -> web.Response:
        """Whether the executor may start: all full tables are loaded.

        Dimensions in partial mode do not delay the start.
        """
        reasons = self.readiness.cold()
        return _not_yet(_NOT_LOADED, reasons) if reasons else _ok()

    async def readyz(self, _request: web.Request) -> web.Response:
        """Whether lookups are accepted: not draining, reachable, every dimension started."""
        self.readiness.check_not_draining()
        if (closed := self.readiness.closed()) is not None:
            return Problem.of(503, ErrorCode.SIDECAR_UNREACHABLE, closed).response()
        reasons = self.readiness.not_ready()
        if not reasons:
            return _ok()
        codes = [error.code for error in self.readiness.undescribed().values()]
        return _not_yet(next(iter(codes), _NOT_LOADED), reasons)

    async def scrape(self, _request: web.Request) -> web.Response:
        """All metrics in the Prometheus text format."""
        return web.Response(body=self.metrics(), headers={"Content-Type": METRICS_TYPE})


def _ok() -> web.Response:
    return web.Response(text="ok\n")


def _not_yet(code: ErrorCode, reasons: Mapping[str, str]) -> web.Response:
    detail = "; ".join(of_dimension(*each) for each in sorted(reasons.items()))
    return Problem.of(503, code, detail).response()
