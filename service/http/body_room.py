"""How many bytes the bodies that are being read may have together, beside the bound of each.

Not how large one may be: whoever comes alone has what `limits.request_bytes` says.
"""

from lookup_core.errors import ErrorCode, Overloaded

RETRY_AFTER_S = 1.0
_UNBOUNDED_BYTES = 1 << 62


class BodyRoom:
    """The bytes that all requests share; one for all listeners."""

    def __init__(self, total_bytes: int = _UNBOUNDED_BYTES) -> None:
        self._total_bytes = total_bytes
        self._used_bytes = 0

    def take(self, more_bytes: int, *, held_bytes: int) -> None:
        """Make room for more of a body that has so much already.

        Raises Overloaded, before anything was taken, while others have what it wants.
        """
        is_alone = self._used_bytes == held_bytes
        if not is_alone and self._used_bytes + more_bytes > self._total_bytes:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "bodies of other requests take the memory for it; come again, or send less",
                retry_after_s=RETRY_AFTER_S,
            )
        self._used_bytes += more_bytes

    def give_back(self, held_bytes: int) -> None:
        """A body that held so much has been read, or given up."""
        self._used_bytes -= held_bytes
        assert self._used_bytes >= 0
