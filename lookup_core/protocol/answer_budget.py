"""Byte budget of unsent answers, and the estimate of an answer's size."""

_CONNECTION_ALPHA = 3  # a connection may hold three times the free bytes
_SMALL_SHARE = 64  # a record of at most this part of the total is small
_MIN_SHARE = 4  # less than this part of the wanted records is not worth a query

FIRST_GUESS_BYTES = 1024 * 1024  # before the first row; few rows are larger
_LEAST_GUESS_BYTES = 4 * 1024
_GAIN = 1 / 8
_MISSING_GAIN = 1 / 64  # some hundred missing keys outweigh large rows
_DEVIATION_GAIN = 1 / 4
_DEVIATIONS = 4


class AnswerBudget:
    """The byte budget of one process, by connection and channel.

    Thresholds are dynamic: a share is limited by the free bytes. Sizes are estimates, so that the
    total may be exceeded.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self.used_bytes = 0  # of all connections; may exceed the total
        # {connection: {channel: bytes, not 0}}
        self._held: dict[int, dict[int, int]] = {}

    def records_that_fit(
        self, connection: int, channel: int, record_bytes: int, *, wanted: int
    ) -> int:
        """How many of the `wanted` records of this size fit now; 0 for less than a quarter.

        A channel without bytes may have one record: a small one always, a large one if its
        connection has room for it, or holds no bytes.
        """
        held = self._held.get(connection, {})
        held_bytes = held.get(channel, 0)
        connection_bytes = sum(held.values())
        free_bytes = self._total_bytes - self.used_bytes
        # Each limit holds after the grant, which reduces the free bytes.
        channel_room = (free_bytes - held_bytes) // 2
        connection_room = _CONNECTION_ALPHA * free_bytes - connection_bytes
        connection_room //= _CONNECTION_ALPHA + 1
        room = min(channel_room // record_bytes, connection_room // record_bytes, wanted)
        if not held_bytes:
            is_small = record_bytes * _SMALL_SHARE <= self._total_bytes
            may_have_one = is_small or not connection_bytes or record_bytes <= connection_room
            return max(room, 1 if may_have_one else 0)
        return room if room * _MIN_SHARE >= wanted else 0

    def hold(self, connection: int, channel: int, count_bytes: int) -> None:
        """Add bytes, even beyond the total."""
        held = self._held.setdefault(connection, {})
        held[channel] = held.get(channel, 0) + count_bytes
        self.used_bytes += count_bytes

    def release(self, connection: int, channel: int, count_bytes: int) -> None:
        """Return bytes, which the channel must hold."""
        held = self._held.get(connection, {})
        left_bytes = held.pop(channel, 0) - count_bytes
        assert left_bytes >= 0
        if left_bytes:
            held[channel] = left_bytes
        self.used_bytes -= count_bytes

    def close(self, connection: int) -> None:
        """Return all bytes of the connection; a no-op if it has none."""
        self.used_bytes -= sum(self._held.pop(connection, {}).values())

    def check_invariants(self) -> None:
        """For tests: the sum matches, and no channel has negative bytes."""
        counts = [count for held in self._held.values() for count in held.values()]
        assert self.used_bytes == sum(counts)
        assert min(counts, default=0) >= 0


class AnswerSize:
    """Estimated answer bytes of a record of one channel, if it has a row.

    After the TCP retransmission timer: mean plus four mean deviations. `guess_bytes` is the
    estimate before the first row.
    """

    def __init__(self, guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._guess_bytes = float(guess_bytes)
        self._least_bytes = min(guess_bytes, _LEAST_GUESS_BYTES)
        self._mean_bytes: float | None = None  # None before the first row
        self._deviation_bytes = 0.0

    @property
    def record_bytes(self) -> int:
        """The bytes to reserve for one record; at least 1."""
        if self._mean_bytes is None:
            return int(self._guess_bytes)
        return int(self._mean_bytes + _DEVIATIONS * self._deviation_bytes) + 1

    def on_rows(self, records: int, answer_bytes: int) -> None:
        """Learn from an answer with rows, to at least one record."""
        found_bytes = answer_bytes / records
        if self._mean_bytes is None:
            self._mean_bytes, self._deviation_bytes = found_bytes, found_bytes / 2
            return
        error_bytes = found_bytes - self._mean_bytes
        self._mean_bytes += _GAIN * error_bytes
        self._deviation_bytes += _DEVIATION_GAIN * (abs(error_bytes) - self._deviation_bytes)

    def on_no_rows(self, records: int) -> None:
        """Reduce the estimate after records without rows, slowly once rows were seen."""
        if self._mean_bytes is None:
            guess_bytes = self._guess_bytes * (1 - _GAIN) ** records
            self._guess_bytes = max(guess_bytes, self._least_bytes)
        elif self.record_bytes > _LEAST_GUESS_BYTES:
            factor = (1 - _MISSING_GAIN) ** records
            self._mean_bytes *= factor
            self._deviation_bytes *= factor
