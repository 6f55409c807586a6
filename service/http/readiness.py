"""Readiness: whether the service accepts lookups now, and if not, why.

Liveness is not decided here; a reply to `/livez` shows it.
"""

from collections.abc import Mapping

from lookup_core.errors import BackendError, ErrorCode, Overloaded
from service.engine.dimension import Dimension
from service.http.security import TokenFile

DRAINING_RETRY_AFTER_S = 5.0


class Readiness:
    """Ready once every dimension is described and started, until the drain begins.

    While a listener is unreachable, or no token is valid, the service is not ready.

    A dimension in full mode is started once its table was loaded, or its maximal wait is over.
    """

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self._dimensions = dimensions
        self.is_draining = False  # once true, new lookups are refused
        self.unreachable: str | None = None  # why no client can connect to a listener
        self.reader_token: TokenFile | None = None
        self.admin_token: TokenFile | None = None
        self._has_memory = True

    def start_draining(self) -> None:
        """Refuse new lookups from now on; this cannot be undone."""
        self.is_draining = True

    def check_not_draining(self) -> None:
        """Raise Overloaded (`draining`) once the drain has begun."""
        if self.is_draining:
            raise Overloaded(
                ErrorCode.DRAINING,
                "the service is shutting down",
                retry_after_s=DRAINING_RETRY_AFTER_S,
            )

    def token_faults(self) -> list[str]:
        """Why token files are not usable, with the remedies."""
        tokens = (each for each in (self.reader_token, self.admin_token) if each is not None)
        return [fault for each in tokens if (fault := each.fault()) is not None]

    def closed(self) -> str | None:
        """Why no client can send lookups: a listener is unreachable, or no token is valid."""
        token = self.reader_token
        fault = None if token is None else token.fault()
        has_token = token is None or token.is_valid
        return self.unreachable or (None if has_token else fault)

    def allow_requests(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Set whether there is memory for more requests; running ones are not affected."""
        self._has_memory = is_allowed

    def check_has_memory(self) -> None:
        """Raise Overloaded while there is no memory for more requests."""
        if not self._has_memory:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "memory is used up; send fewer requests at once, or raise limits.memory",
            )

    def cold(self) -> dict[str, str]:
        """The dimensions that have not started yet, each with what it waits for."""
        undescribed = self.undescribed()
        # Every dimension is checked: one counts as started from its first check that finds it so.
        reasons = {name: each.cold_reason() for name, each in self._dimensions.items()}
        return {
            name: undescribed[name].detail if name in undescribed else reason
            for name, reason in reasons.items()
            if reason is not None
        }

    def not_ready(self) -> dict[str, str]:
        """The dimensions that have not started or are not described, each with the reason."""
        return self.cold() | {name: error.detail for name, error in self.undescribed().items()}

    def undescribed(self) -> dict[str, BackendError]:
        """The dimensions whose backend has not described them yet, each with the error."""
        faults = ((name, dimension.schema.fault) for name, dimension in self._dimensions.items())
        return {name: fault for name, fault in faults if fault is not None}
