"""What a channel's sender may still send, in records and in bytes, and what is worth sending.

The client's side of the account only: who grants what to whom is the service's.
"""

from lookup_core.errors import ErrorCode, InvalidRequest

_SLIVER = 4  # less than this part of the credit is not worth a frame: better wait for more


class ClientCredit:
    """Credit of one channel; never below zero."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self._most_records = 0  # that there ever were since `restart`
        self._most_bytes = 0

    def restart(self, records: int, size: int) -> None:
        """Begin anew with so many records and bytes: what was before does not count."""
        self.records = self._most_records = records
        self.bytes = self._most_bytes = size

    def add(self, records: int, size: int) -> None:
        """So much more may be sent."""
        self.records += records
        self.bytes += size
        self._most_records = max(self._most_records, self.records)
        self._most_bytes = max(self._most_bytes, self.bytes)

    def spend(self, records: int, size: int) -> None:
        """So much was sent."""
        assert records <= self.records
        assert size <= self.bytes
        self.records -= records
        self.bytes -= size

    def records_to_send(self, waiting: int) -> int:
        """How many of the waiting records to send now; 0 if more credit is worth waiting for."""
        count = min(waiting, self.records)
        return 0 if count < waiting and count * _SLIVER < self._most_records else count

    def records_within(self, count: int, size: int) -> int:
        """Fewer than `count` records, which take `size` bytes, so that the bytes may suffice.

        0 if more credit is worth waiting for. Raises InvalidRequest if a single record takes more
        bytes than the channel ever had.
        """
        if self.bytes * _SLIVER < self._most_bytes:
            return 0
        if count > 1:
            return max(min(count - 1, count * self.bytes // size), 1)
        if self.bytes < self._most_bytes:
            return 0
        raise InvalidRequest(
            ErrorCode.BAD_REQUEST,
            f"a key takes {size} bytes on the wire, the channel's credit is {self.bytes}",
        )
