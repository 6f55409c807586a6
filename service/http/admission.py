"""How many requests may be under way at once; none that would begin work without memory for it.

During a drain none begins work, either.

Not flow control: a request over the limit is refused at once, it never waits here.
"""

from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from lookup_core.errors import ErrorCode, Overloaded
from service.http.problem import problem_of_error
from service.http.readiness import Readiness
from service.http.route import Audience, audience_of

RETRY_AFTER_S = 1.0


class Admission:
    """The slots of one listener; one is taken until the response is sent or the stream closed."""

    def __init__(
        self, readiness: Readiness, audiences: Mapping[str, Audience], *, limit: int
    ) -> None:
        self._readiness = readiness
        self._audiences = audiences
        self._limit = limit
        self._under_way = 0

    @web.middleware
    async def admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The outermost middleware: refuses before anything of the request was looked at."""
        audience = audience_of(request, self._audiences)
        if audience is Audience.PROBE:
            return await handler(request)
        try:
            self._check(audience)
        except Overloaded as error:
            response = problem_of_error(error).response()
            response.force_close()
            return response
        self._under_way += 1
        try:
            return await handler(request)
        finally:
            self._under_way -= 1

    def _check(self, audience: Audience) -> None:
        if audience is Audience.CALLER:
            self._readiness.check_not_draining()
            self._readiness.check_has_memory()
        if self._under_way >= self._limit:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self._limit} requests are under way, which is the limit",
                retry_after_s=RETRY_AFTER_S,
            )
