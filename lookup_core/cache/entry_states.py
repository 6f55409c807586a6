"""Entry states of a cache in four bytes each, and the TTLs of rows and of negative entries."""

import math
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.keys.key_index import Slots, Zeros
from lookup_core.settings import CacheSettings

Words = npt.NDArray[np.uint32]  # 29 bits of ticks, one for negative entries, two of visits
Mask = npt.NDArray[np.bool_]
Seconds = npt.NDArray[np.float64]

BYTES_BY_SLOT = 4
MAX_VISITS = 3

_TICK_SHIFT = 3
_NEGATIVE_BIT = 4
_TICKS = 2 ** (32 - _TICK_SHIFT)
_LEAST_TICK_S = 2.0**-20
_JITTER_BITS = 24  # the upper bits of a hash shorten the time to live
_JITTER_SHIFT = 64 - _JITTER_BITS

_Hash = TypeVar("_Hash", int, Hashes)


@dataclass(frozen=True, slots=True)
class StateTable:
    """The states by slot, to be read: a tick takes `tick_s`, and the first one has the number 0."""

    words: Words
    tick_s: float
    first_tick: int

    def words_of(self, slots: Slots) -> Words:
        """The states of these slots, for the methods below; for ABSENT that of any slot."""
        return self.words.take(slots, mode="clip")

    def ages_s(self, words: Words, now: float) -> Seconds:
        """The ages of entries."""
        ages_s = (words >> _TICK_SHIFT).astype(np.float64)
        ages_s *= -self.tick_s
        ages_s += now - self.first_tick * self.tick_s
        return ages_s

    def age_s(self, word: int, now: float) -> float:
        """The age of one entry."""
        return now - (self.first_tick + (word >> _TICK_SHIFT)) * self.tick_s

    def row_age_s(self, slot: int, now: float) -> float | None:
        """The age of one entry that is a row; None for a negative one."""
        word = self.words.item(slot)
        return None if word & _NEGATIVE_BIT else self.age_s(word, now)

    @staticmethod
    def is_negative(words: Words) -> Mask:
        """Which entries are negative."""
        return (words & _NEGATIVE_BIT) != 0

    @staticmethod
    def visits(words: Words) -> Words:
        """The visits of each entry since it entered its queue, MAX_VISITS at most."""
        return words & np.uint32(MAX_VISITS)

    def count_visits(self, slots: Slots, words: Words) -> None:
        """Count a visit of these slots with these states; duplicates are one visit."""
        is_more = (words & MAX_VISITS) < MAX_VISITS
        if is_more.any():
            self.words[slots[is_more]] = words[is_more] + 1

    def visited_row_age_s(self, slot: int, now: float, ttl_s: float) -> float | None:
        """The age of one entry that is a fresh row, and count a visit of it; else None."""
        word = self.words.item(slot)
        age_s = now - (self.first_tick + (word >> _TICK_SHIFT)) * self.tick_s
        if word & _NEGATIVE_BIT or age_s >= ttl_s:
            return None
        if word & MAX_VISITS < MAX_VISITS:
            self.words[slot] = word + 1
        return age_s


class EntryStates:
    """States by slot. Read times are rounded down to a tick, so that no entry is served too long.

    A tick takes 2**-20 s, or for long lives up to `life_s` / 2**26, where `life_s` is the maximal
    age of an entry in use. Entries whose read time is out of range have outlived it.
    """

    def __init__(self, life_s: float, zeros: Zeros = np.zeros) -> None:
        """`zeros` allocates the array of `table`."""
        self._zeros = zeros
        # The ticks span four lives: when they move, a new entry is in the middle, after two lives.
        tick_s = 2.0 ** math.ceil(math.log2(max(life_s * 4 / _TICKS, _LEAST_TICK_S)))
        self.table = StateTable(zeros(0, np.uint32), tick_s, first_tick=-_TICKS // 2)

    @property
    def bytes(self) -> int:
        """Memory of the states."""
        return self.table.words.nbytes

    def resize(self, slot_count: int) -> None:
        """Make room for slots below `slot_count`, which never decreases here."""
        self._replace(self.table.words, slot_count)

    def renumber(self, kept: Slots, slot_count: int) -> None:
        """Rename slot `kept[i]` to slot i, and make room for `slot_count` slots."""
        self._replace(self.table.words[kept], slot_count)

    def begin(self, slots: Slots, *, read_at: float, is_negative: bool) -> None:
        """Set the states of new entries, unvisited."""
        tick = math.floor(read_at / self.table.tick_s)
        if tick - self.table.first_tick >= _TICKS:
            self._begin_later(tick - _TICKS // 2)
        ticks = max(tick - self.table.first_tick, 0)
        self.table.words[slots] = ticks << _TICK_SHIFT | (_NEGATIVE_BIT if is_negative else 0)

    def oldest_age_s(self, is_used: Mask, now: float) -> float:
        """The age of the oldest entry in the used slots; there is one."""
        return self.table.age_s(int(self.table.words[is_used].min()), now)

    def set_visits(self, slots: Slots, visits: Words | int) -> None:
        """Set the visits of these slots."""
        words = self.table.words
        words[slots] = words[slots] & ~np.uint32(MAX_VISITS) | visits

    def _replace(self, words: Words, slot_count: int) -> None:
        longer: Words = self._zeros(slot_count, np.uint32)
        longer[: len(words)] = words
        self.table = replace(self.table, words=longer)

    def _begin_later(self, first_tick: int) -> None:
        words, passed = self.table.words, first_tick - self.table.first_tick
        ticks = words >> _TICK_SHIFT
        kept = ticks - np.minimum(ticks, min(passed, _TICKS)).astype(np.uint32)
        # A new array: a reader must not see new words with the old first tick.
        self.table = replace(self.table, first_tick=first_tick)
        self._replace(kept << _TICK_SHIFT | words & (_NEGATIVE_BIT | MAX_VISITS), len(words))


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Times to live and of stale service for the entries of one cache."""

    settings: CacheSettings

    @property
    def longest_s(self) -> float:
        """The age from which on no entry is of use."""
        return max(self.settings.ttl_s + self.settings.stale_s, self.settings.negative_ttl_s)

    def ttl_s(self, hashes: Hashes, is_negative: Mask) -> Seconds:
        """The time to live of each entry."""
        ttl_s = np.where(is_negative, self.settings.negative_ttl_s, self.settings.ttl_s)
        return ttl_s * self._jitter(hashes) if self.settings.ttl_jitter else ttl_s

    def are_fresh(self, ages_s: Seconds, hashes: Hashes, is_negative: Mask) -> Mask:
        """Which entries have not expired."""
        settings = self.settings
        shortest_s = settings.ttl_s
        if np.count_nonzero(is_negative):
            shortest_s = min(shortest_s, settings.negative_ttl_s)
        least_s = shortest_s * (1 - settings.ttl_jitter)
        is_young: Mask = ages_s < least_s
        if np.count_nonzero(is_young) == len(is_young):  # the usual case
            return is_young
        return ages_s < self.ttl_s(hashes, is_negative)

    def row_ttl_s(self, key_hash: int) -> float:
        """The time to live of one row."""
        return self.settings.ttl_s * self._jitter(key_hash)

    def is_stale(self, ages_s: Seconds, ttl_s: Seconds, is_negative: Mask) -> Mask:
        """Which entries have expired, but may be served stale."""
        if not self.settings.stale_s:
            return np.zeros(len(ages_s), np.bool_)
        return ~is_negative & (ages_s >= ttl_s) & (ages_s < ttl_s + self.settings.stale_s)

    def is_over(self, ages_s: Seconds, hashes: Hashes, is_negative: Mask) -> Mask:
        """Which entries are of no use any longer."""
        ttl_s = self.ttl_s(hashes, is_negative)
        return (ages_s >= ttl_s) & ~self.is_stale(ages_s, ttl_s, is_negative)

    def _jitter(self, hashes: _Hash) -> Any:  # noqa: ANN401  # a float for an int, else an array
        """The share of the time to live that each key has, in (0, 1]."""
        return 1 - self.settings.ttl_jitter * ((hashes >> _JITTER_SHIFT) * 0.5**_JITTER_BITS)
