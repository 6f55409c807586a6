"""Whether the service may take lookups now, and if not, why.

Not whether the process lives: that is seen by its answering at all.
"""

from collections.abc import Mapping

from lookup_core.errors import BackendError, ErrorCode, Overloaded
from service.engine.dimension import Dimension

DRAINING_RETRY_AFTER_S = 5.0
MEMORY_RETRY_AFTER_S = 1.0


class Readiness:
    """Ready once every dimension was described by its store, until the drain begins.

    One that is to be held whole must have been loaded, too, or have been waited for long enough.
    """

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self._dimensions = dimensions
        self._is_draining = False
        self._has_memory = True

    @property
    def is_draining(self) -> bool:
        """Whether new lookups are refused while those under way are finished."""
        return self._is_draining

    def start_draining(self) -> None:
        """Refuse new lookups from now on; there is no way back."""
        self._is_draining = True

    def check_not_draining(self) -> None:
        """Raise Overloaded (`draining`) once the drain has begun."""
        if self._is_draining:
            raise Overloaded(
                ErrorCode.DRAINING,
                "the service is shutting down",
                retry_after_s=DRAINING_RETRY_AFTER_S,
            )

    def allow_requests(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Whether there is memory for more requests; those under way go on."""
        self._has_memory = is_allowed

    def check_has_memory(self) -> None:
        """Raise Overloaded while there is no memory for more requests."""
        if not self._has_memory:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "memory is used up; send less at once, or raise limits.memory",
                retry_after_s=MEMORY_RETRY_AFTER_S,
            )

    def cold(self) -> dict[str, str]:
        """The dimensions that have not started yet, with what each waits for; never again after."""
        undescribed = self.undescribed()
        reasons = {}
        # Asked all, as each counts as started from the first answer on that says so.
        for name, dimension in self._dimensions.items():
            reason = dimension.cold_reason()
            if reason is not None:
                reasons[name] = undescribed[name].detail if name in undescribed else reason
        return reasons

    def undescribed(self) -> dict[str, BackendError]:
        """The dimensions that can not be looked up yet, with the reason of each."""
        reasons = {}
        for name, dimension in self._dimensions.items():
            try:
                dimension.schema  # noqa: B018  # asked for the error alone
            except BackendError as error:
                reasons[name] = error
        return reasons
