"""Byte budget of answers that are made and not yet sent, and the estimate of an answer's size."""

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


FIRST_GUESS_BYTES = 1024 * 1024  # while no row was seen: few are larger, and it is soon known
_LEAST_GUESS_BYTES = 4 * 1024
_GAIN = 1 / 8
_ABSENT_GAIN = 1 / 64  # after some hundred absences the largest rows are forgotten
_DEVIATION_GAIN = 1 / 4
_DEVIATIONS = 4


class AnswerSize:
    """Of the records of one channel, as if each of them had a row: the next ones may.

    `guess_bytes` is what a record has while no row was seen.
    """

    def __init__(self, guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._guess_bytes = float(guess_bytes)
        self._least_bytes = min(guess_bytes, _LEAST_GUESS_BYTES)
        self._mean_bytes: float | None = None  # None: no row was seen
        self._deviation_bytes = 0.0

    @property
    def record_bytes(self) -> int:
        """What to reserve for one record; at least one byte."""
        if self._mean_bytes is None:
            return int(self._guess_bytes)
        return int(self._mean_bytes + _DEVIATIONS * self._deviation_bytes) + 1

    def on_rows(self, records: int, answer_bytes: int) -> None:
        """An answer with rows to so many records, not none, has so many bytes."""
        found_bytes = answer_bytes / records
        if self._mean_bytes is None:
            self._mean_bytes, self._deviation_bytes = found_bytes, found_bytes / 2
            return
        error_bytes = found_bytes - self._mean_bytes
        self._mean_bytes += _GAIN * error_bytes
        self._deviation_bytes += _DEVIATION_GAIN * (abs(error_bytes) - self._deviation_bytes)

    def on_no_rows(self, records: int) -> None:
        """So many records had no rows: the more there are, the less is it worth to be cautious.

        What was seen of rows fades, too, but slowly, and not below what is small.
        """
        if self._mean_bytes is None:
            guess_bytes = self._guess_bytes * (1 - _GAIN) ** records
            self._guess_bytes = max(guess_bytes, self._least_bytes)
        elif self.record_bytes > _LEAST_GUESS_BYTES:
            left = (1 - _ABSENT_GAIN) ** records
            self._mean_bytes *= left
            self._deviation_bytes *= left
