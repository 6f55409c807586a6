"""How far one partition has told the log of its database, and what is told once more.

Knows positions only, not what was told. A connector that begins anew tells again what it had told
since it last noted how far it was: former rows, after newer ones. Positions are ordered as those
are who tell them, after Materialize: by where the transaction before ended, then by the change's
own place. Its own place does not do: transactions are told by their ends, one after the other, and
what a later one has changed may stand before what an earlier one did.
"""

import re
from collections.abc import Collection
from typing import Self, TypeAlias

LogPosition: TypeAlias = tuple[int, int]  # where the transaction before ended; the change's place

# What is told again is no later than what was told; but clocks of servers are set, and set back.
_ANEW_MS = 60_000
# Debezium's `source.sequence`; null before the first transaction that it has seen the end of.
_SEQUENCE = re.compile(r'\[\s*(?:null|"([0-9]{1,20})")\s*,\s*"([0-9]{1,20})"\s*\]')
_BEGINNING = 0


class ToldLog:
    """Of one partition; a database may tell no positions at all: None throughout."""

    def __init__(self) -> None:
        self._newest: LogPosition | None = None
        self._latest_ms = 0  # of what was news
        self._reads_rows = False  # what was told last was no change

    def is_news(self, position: LogPosition | None) -> bool:
        """Whether nothing later was told.

        So is what stands where the newest does: rows that are written at once share their place,
        and no key is there twice.
        """
        if self._newest is None:
            return True
        return position is not None and position >= self._newest

    def begins_anew(self, position: LogPosition | None, time_ms: int) -> bool:
        """Whether it is of another log, as after a restore: later than all, at a former place."""
        return not self.is_news(position) and time_ms > self._latest_ms + _ANEW_MS

    def note(self, position: LogPosition | None, time_ms: int) -> bool:
        """A change was told: the log goes on from there, unless it was told again.

        Whether that is of another log, as `begins_anew` says.
        """
        self._reads_rows = False
        begins_anew = self.begins_anew(position, time_ms)
        if begins_anew or self.is_news(position):
            self._newest = position
            self._latest_ms = max(self._latest_ms, time_ms)
        return begins_anew

    def note_snapshot(self, *, is_first: bool) -> bool:
        """A row was read; whether that begins to tell all rows.

        A connector that has lost its place does so, and nobody tells which rows are gone.
        """
        begins = is_first or not self._reads_rows
        self._reads_rows = True
        return begins

    def is_beyond(self, other: Self) -> bool:
        """Whether it is further; where one is much later, its log has taken the other's place."""
        if other._newest is None or self._newest is None:
            return self._newest is not None
        later_ms = self._latest_ms - other._latest_ms
        return later_ms > 0 if abs(later_ms) > _ANEW_MS else self._newest > other._newest

    def catch_up(self, other: Self) -> None:
        """Be as far as another partition."""
        self._newest, self._latest_ms = other._newest, other._latest_ms


def level(logs: Collection[ToldLog]) -> None:
    """Let all partitions be as far as the furthest: what was told in one may be told in others."""
    furthest = ToldLog()
    for log in logs:
        if log.is_beyond(furthest):
            furthest = log
    for log in logs:
        log.catch_up(furthest)


def log_position(sequence: object) -> LogPosition | None:
    """The position of a change, from what Debezium tells of it; None if it does not."""
    found = _SEQUENCE.fullmatch(sequence) if isinstance(sequence, str) else None
    return found and (int(found[1] or _BEGINNING), int(found[2]))


def snapshot_position(sequence: object) -> LogPosition | None:
    """The position of a row that a connector has read: behind all that had ended by then."""
    position = log_position(sequence)
    return position and (position[1], position[1])
