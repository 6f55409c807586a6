"""Which keys of one sent lookup have no answer yet: each position is to be answered exactly once.

Holds the service to its word; what an answer says of a key is not looked at.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.errors import ErrorCode, ProtocolViolation


class OpenPositions:
    """All of them at first; none behind the last answer."""

    def __init__(self, count: int) -> None:
        self._is_open = np.ones(count, np.bool_)
        self._left = count

    def take(self, positions: npt.NDArray[np.int32], *, is_last: bool) -> None:
        """These are answered now.

        Raises ProtocolViolation for one that is not there, that was answered already or is named
        twice, and for a last answer that leaves some open: their task would wait for nothing.
        """
        count = len(self._is_open)
        is_inside = bool(((positions >= 0) & (positions < count)).all())
        if not is_inside or not self._is_open[positions].all():
            raise _not_distinct(count)
        self._is_open[positions] = False
        left = int(np.count_nonzero(self._is_open))
        is_distinct = self._left - left == len(positions)
        if is_distinct and not (is_last and left):
            self._left = left
            return
        self._is_open[positions] = True  # as all of them were
        if not is_distinct:
            raise _not_distinct(count)
        raise _bad(f"the last answer leaves {left} of {count} keys without one")


def _not_distinct(count: int) -> ProtocolViolation:
    return _bad(f"an answer's positions must be distinct and below {count}")


def _bad(detail: str) -> ProtocolViolation:
    return ProtocolViolation(ErrorCode.BAD_FRAME, detail)
