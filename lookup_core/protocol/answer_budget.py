"""How many bytes of answers may be under way or made, and not yet handed to their peers.

Shared with the dynamic threshold of switch buffers (Choudhury, Hahne: IEEE/ACM Transactions on
Networking 6, 1998): a channel may hold as much as is still free (alpha 1), so that one whose store
hangs leaves room to its neighbours; a connection thrice as much, so that a peer that reads nothing,
on however many channels, leaves a fourth to others. Not credit: that bounds keys.
"""

from typing import Generic, TypeVar

_CONNECTION_ALPHA = 3
_SMALL_SHARE = 64  # a record of at most so much of all is small: hundreds of them are harmless
_LEAST_SHARE = 4  # a fourth of what is wanted, or nothing: small change is not worth a query

Owner = TypeVar("Owner")


class AnswerBudget(Generic[Owner]):
    """Bytes for the answers of the whole process, by the connection and channel they are for."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._used_bytes = 0
        # {connection: {channel: bytes of its answers, some}}
        self._held: dict[Owner, dict[int, int]] = {}

    @property
    def used_bytes(self) -> int:
        """What all connections hold; more than the total when answers were larger than thought."""
        return self._used_bytes

    def open(self, owner: Owner) -> None:
        """A new connection, which holds nothing yet."""
        assert owner not in self._held
        self._held[owner] = {}

    def records_that_fit(
        self, owner: Owner, channel: int, record_bytes: int, *, wanted: int
    ) -> int:
        """For how many records of this size, out of `wanted`, there is room now; 0 for too few.

        A channel that holds nothing may have one, so that it gets on: a small one always, a large
        one if its connection holds nothing, or has room for it. So those that are too large are no
        more than there are connections.
        """
        held_bytes = self._held[owner].get(channel, 0)
        of_connection_bytes = sum(self._held[owner].values())
        free_bytes = self._total_bytes - self._used_bytes
        # A part of it: what is taken now is no longer free when it is compared with what is.
        left_bytes = (free_bytes - held_bytes) // 2
        of_all_bytes = _CONNECTION_ALPHA * free_bytes - of_connection_bytes
        of_all_bytes //= _CONNECTION_ALPHA + 1
        room = min(left_bytes // record_bytes, of_all_bytes // record_bytes, wanted)
        if not held_bytes:
            is_small = record_bytes * _SMALL_SHARE <= self._total_bytes
            may_have_one = is_small or not of_connection_bytes or record_bytes <= of_all_bytes
            return max(room, int(may_have_one))
        return room if room * _LEAST_SHARE >= wanted else 0

    def hold(self, owner: Owner, channel: int, count_bytes: int) -> bool:
        """Take so many bytes, whether there is room or not; False once the owner is closed."""
        if owner not in self._held:
            return False
        held = self._held[owner]
        held[channel] = held.get(channel, 0) + count_bytes
        self._used_bytes += count_bytes
        return True

    def release(self, owner: Owner, channel: int, count_bytes: int) -> bool:
        """Give so many bytes back; False once the owner is closed, which gave back all."""
        if owner not in self._held:
            return False
        held = self._held[owner]
        left_bytes = held.pop(channel, 0) - count_bytes
        assert left_bytes >= 0
        if left_bytes:
            held[channel] = left_bytes
        self._used_bytes -= count_bytes
        return True

    def close(self, owner: Owner) -> bool:
        """Give back all that the owner holds, once; False if it is closed already."""
        held = self._held.pop(owner, None)
        self._used_bytes -= sum(held.values()) if held else 0
        return held is not None

    def check_invariants(self) -> None:
        """For tests: what is used is what the owners hold."""
        assert self._used_bytes == sum(sum(held.values()) for held in self._held.values())
        assert all(
            count_bytes >= 0 for held in self._held.values() for count_bytes in held.values()
        )
