"""How many requests may be under way at once; none that would begin work without memory for it.

During a drain none begins work, either. Not flow control: a request over the limit is refused at
once, it never waits here.
"""

from lookup_core.errors import ErrorCode, Overloaded
from service.http.readiness import Readiness
from service.http.route import Audience

RETRY_AFTER_S = 1.0


class Admission:
    """The slots of one listener; one is taken until the response is sent or the stream closed.

    Probes take none.
    """

    def __init__(self, readiness: Readiness, *, limit: int) -> None:
        self._readiness = readiness
        self._limit = limit
        self._under_way = 0

    def enter(self, audience: Audience) -> None:
        """Take a slot for a request, or raise Overloaded; who entered leaves."""
        if audience is Audience.PROBE:
            return
        if audience is Audience.CALLER:
            self._readiness.check_not_draining()
            self._readiness.check_has_memory()
        if self._under_way >= self._limit:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self._limit} requests are under way, which is the limit",
                retry_after_s=RETRY_AFTER_S,
            )
        self._under_way += 1

    def leave(self, audience: Audience) -> None:
        """Give the slot back."""
        if audience is not Audience.PROBE:
            self._under_way -= 1
