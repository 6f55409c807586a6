"""What a channel's sender may still send, in records and in bytes, and what is worth sending.

The client's side of the account only: who grants what to whom is the service's.
"""

MOST_LOOKUP_BYTES = 1024 * 1024  # of one frame: others of the connection wait behind it
_SLIVER = 2  # less than this part of what the channel holds is not worth a frame: wait for more


class ClientCredit:
    """Credit of one channel; never below zero.

    The service may give back less than was spent, so what the channel holds is not a constant: it
    is what it may send, and what it has sent and not seen the end of.
    """

    def __init__(self) -> None:
        self.records = 0  # that may be sent
        self.bytes = 0
        self.exclusive_bytes = 0  # what the channel has at the least, and so a single key at most
        self._unanswered: dict[int, tuple[int, int]] = {}  # {sequence: records and bytes it cost}
        self._unanswered_records = 0
        self._unanswered_bytes = 0

    def restart(self, records: int, size: int) -> None:
        """Begin anew with the exclusive credit: what was before does not count."""
        self.records = records
        self.bytes = self.exclusive_bytes = size
        self._unanswered.clear()
        self._unanswered_records = 0
        self._unanswered_bytes = 0

    def add(self, records: int, size: int) -> None:
        """So much more may be sent."""
        self.records += records
        self.bytes += size

    def spend(self, sequence: int, *, records: int, size: int) -> None:
        """A lookup was sent that costs so much."""
        assert records <= self.records
        assert size <= self.bytes
        self.records -= records
        self.bytes -= size
        self._unanswered[sequence] = records, size
        self._unanswered_records += records
        self._unanswered_bytes += size

    def settle(self, sequence: int) -> None:
        """A lookup has ended; its credit comes back on its own, or does not. Harmless twice."""
        records, size = self._unanswered.pop(sequence, (0, 0))
        self._unanswered_records -= records
        self._unanswered_bytes -= size

    @property
    def lookup_bytes(self) -> int:
        """How many bytes one lookup may take now."""
        return min(self.bytes, MOST_LOOKUP_BYTES)

    def records_to_send(self, waiting: int) -> int:
        """How many of the waiting records to send now; 0 if more credit is worth waiting for.

        It is only while something is unanswered: then there is something to wait for.
        """
        count = min(waiting, self.records)
        is_all = count == waiting
        return 0 if not is_all and _is_sliver(count, self._unanswered_records) else count

    def records_within(self, count: int, size: int) -> int:
        """Fewer than `count` records, which take `size` bytes, so that the bytes may suffice.

        0 if more credit must be waited for, or is worth it.
        """
        if count == 1 or _is_sliver(self.bytes, self._unanswered_bytes):
            return 0
        return max(min(count - 1, count * self.lookup_bytes // size), 1)

    def check_invariants(self) -> None:
        """For tests: nothing is below zero."""
        assert self.records >= 0
        assert self.bytes >= 0
        costs = self._unanswered.values()
        assert self._unanswered_records == sum(records for records, _ in costs)
        assert self._unanswered_bytes == sum(size for _, size in costs)


def _is_sliver(available: int, unanswered: int) -> bool:
    return unanswered > 0 and available * _SLIVER < available + unanswered
