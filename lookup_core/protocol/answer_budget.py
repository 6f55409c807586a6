"""How many bytes of answers may be under way or made, and not yet handed to their peers.

Shared by all connections with the dynamic threshold of switch buffers (Choudhury, Hahne: IEEE/ACM
Transactions on Networking 6, 1998; alpha 1): one may hold as much as is still free. A connection
whose peer reads nothing stops itself only. Not credit: that bounds keys, and is the peer's to use.
"""

from typing import Generic, TypeVar

_LEAST_SHARE = 4  # a fourth of what is wanted, or nothing: small change is not worth a query

Owner = TypeVar("Owner")


class AnswerBudget(Generic[Owner]):
    """Bytes for the answers of the whole process, by the connection that they are for."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._used_bytes = 0
        self._held: dict[Owner, int] = {}  # {connection: bytes of its answers}

    @property
    def used_bytes(self) -> int:
        """What all connections hold; more than the total when answers were larger than thought."""
        return self._used_bytes

    def open(self, owner: Owner) -> None:
        """A new connection, which holds nothing yet."""
        assert owner not in self._held
        self._held[owner] = 0

    def records_that_fit(self, owner: Owner, record_bytes: int, *, wanted: int) -> int:
        """For how many records of this size, out of `wanted`, there is room now; 0 for too few.

        A connection that holds nothing may always have one, so that it gets on.
        """
        held_bytes = self._held[owner]
        # Half of it: what it takes now is no longer free when it is compared with what is.
        left_bytes = (self._total_bytes - self._used_bytes - held_bytes) // 2
        room = min(left_bytes // record_bytes, wanted)
        if not held_bytes:
            return max(room, 1)
        return room if room * _LEAST_SHARE >= wanted else 0

    def hold(self, owner: Owner, count_bytes: int) -> bool:
        """Take so many bytes, whether there is room or not; False once the owner is closed."""
        if owner not in self._held:
            return False
        self._held[owner] += count_bytes
        self._used_bytes += count_bytes
        return True

    def release(self, owner: Owner, count_bytes: int) -> bool:
        """Give so many bytes back; False once the owner is closed, which gave back all."""
        if owner not in self._held:
            return False
        assert count_bytes <= self._held[owner]
        self._held[owner] -= count_bytes
        self._used_bytes -= count_bytes
        return True

    def close(self, owner: Owner) -> bool:
        """Give back all that the owner holds, once; False if it is closed already."""
        held_bytes = self._held.pop(owner, None)
        self._used_bytes -= held_bytes or 0
        return held_bytes is not None

    def check_invariants(self) -> None:
        """For tests: what is used is what the owners hold."""
        assert self._used_bytes == sum(self._held.values())
        assert all(held_bytes >= 0 for held_bytes in self._held.values())
