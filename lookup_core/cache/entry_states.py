"""Entry states by slot, four bytes each, and the lifetimes that decide freshness."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.keys.key_index import Slots
from lookup_core.settings import CacheSettings

Words = npt.NDArray[np.uint32]  # 29 bits of ticks, one of being an absence, two of visits
Mask = npt.NDArray[np.bool_]

BYTES_BY_SLOT = 4
MOST_VISITS = 3  # more than that tells nothing more

_TICK_SHIFT = 3
_ABSENT_BIT = 4
_LAST_WORD = 2**32 - 1
_TICKS = 2 ** (32 - _TICK_SHIFT)
_LEAST_TICK_S = 2.0**-20


class EntryStates:
    """Times are told a tick too early at most, so that nothing is served for longer than it may.

    A tick is a millionth of a second or of `life_s`, the longest that an entry may be served. What
    is so old that its time cannot be told has outlived that, and is told as older.
    """

    def __init__(self, life_s: float) -> None:
        # Four lives in the ticks there are, so that the half before an entry that comes has two.
        self._tick_s = 2.0 ** math.ceil(math.log2(max(life_s * 4 / _TICKS, _LEAST_TICK_S)))
        self._first_tick = -_TICKS // 2  # the one that counts as 0
        self._words: Words = np.zeros(0, np.uint32)  # by slot

    @property
    def bytes(self) -> int:
        """What is held in memory."""
        return self._words.nbytes

    def resize(self, slot_count: int) -> None:
        """Have so many slots, not less than before."""
        more = np.zeros(slot_count - len(self._words), np.uint32)
        self._words = np.concatenate((self._words, more))

    def renumber(self, kept: Slots, slot_count: int) -> None:
        """Call slot `kept[i]` slot i from now on, and have so many."""
        self._words = self._words[kept]
        self.resize(slot_count)

    def begin(self, slots: Slots, *, read_at: float, is_absence: bool) -> None:
        """Entries come into these slots, unvisited."""
        self._words[slots] = self._ticks_at(read_at) << _TICK_SHIFT | is_absence * _ABSENT_BIT

    def of(self, slots: Slots) -> Words:
        """What is known of these slots, for the questions below; of ABSENT it is any slot's."""
        return self._words.take(slots)

    def of_one(self, slot: int) -> int:
        """The same of one slot."""
        return self._words.item(slot)

    def ages_s(self, words: Words, now: float) -> npt.NDArray[np.float64]:
        """How long ago the entries were read."""
        ages_s = (words >> _TICK_SHIFT).astype(np.float64)
        ages_s *= -self._tick_s
        ages_s += now - self._first_tick * self._tick_s
        return ages_s

    def age_s(self, word: int, now: float) -> float:
        """How long ago one entry was read."""
        return now - (self._first_tick + (word >> _TICK_SHIFT)) * self._tick_s

    def oldest_age_s(self, free: Slots, now: float) -> float:
        """How long ago the first entry was read; there is one, and none in the free slots."""
        words = self._words.copy()
        words[free] = _LAST_WORD
        return self.age_s(int(words.min()), now)

    @staticmethod
    def is_row(word: int) -> bool:
        """Whether one entry is no absence."""
        return not word & _ABSENT_BIT

    @staticmethod
    def is_absence(words: Words) -> Mask:
        """Which of the entries are absences."""
        return (words & _ABSENT_BIT) != 0

    @staticmethod
    def visits(words: Words) -> Words:
        """How often each was asked for since it came into its queue, MOST_VISITS at most."""
        return words & np.uint32(MOST_VISITS)

    def visit(self, slots: Slots, words: Words) -> None:
        """Count a visit of these slots, of which `words` are known; duplicates are one visit."""
        is_more = self.visits(words) < MOST_VISITS
        if is_more.any():
            self._words[slots[is_more]] = words[is_more] + 1

    def visit_one(self, slot: int, word: int) -> None:
        """Count a visit of one slot, of which `word` is known."""
        if word & MOST_VISITS < MOST_VISITS:
            self._words[slot] = word + 1

    def set_visits(self, slots: Slots, visits: Words | int) -> None:
        """Let them have been asked for so often."""
        self._words[slots] = self._words[slots] & ~np.uint32(MOST_VISITS) | visits

    def _ticks_at(self, read_at: float) -> int:
        tick = math.floor(read_at / self._tick_s)
        if tick - self._first_tick >= _TICKS:
            self._begin_later(tick - _TICKS // 2)
        return max(tick - self._first_tick, 0)

    def _begin_later(self, first_tick: int) -> None:
        passed = first_tick - self._first_tick
        ticks = self._words >> _TICK_SHIFT
        kept = ticks - np.minimum(ticks, min(passed, _TICKS)).astype(np.uint32)
        self._words = kept << _TICK_SHIFT | self._words & (_ABSENT_BIT | MOST_VISITS)
        self._first_tick = first_tick


Seconds = npt.NDArray[np.float64]

_SHARE_BITS = 24


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Of the entries of one cache."""

    settings: CacheSettings

    @property
    def _stay_s(self) -> float:
        # Beyond the time to live, of a row that may be served stale. Never of an absence: its row
        # may have come since.
        return max(self.settings.stale_while_revalidate_s, self.settings.stale_if_error_s)

    @property
    def longest_s(self) -> float:
        """The greatest age at which an entry may be of use."""
        return max(self.settings.ttl_s + self._stay_s, self.settings.negative_ttl_s)

    def ttl_s(self, hashes: Hashes, is_negative: Mask) -> Seconds:
        """The age at which each entry is no longer fresh."""
        ttl_s = np.where(is_negative, self.settings.negative_ttl_s, self.settings.ttl_s)
        if not self.settings.ttl_jitter:
            return ttl_s
        shares = (hashes >> np.uint64(64 - _SHARE_BITS)) * (0.5**_SHARE_BITS)  # in [0, 1)
        return ttl_s * (1 - self.settings.ttl_jitter * shares)

    def row_ttl_s(self, key_hash: int) -> float:
        """The same of one row."""
        share = (key_hash >> (64 - _SHARE_BITS)) * 0.5**_SHARE_BITS
        return self.settings.ttl_s * (1 - self.settings.ttl_jitter * share)

    def is_stale(self, ages_s: Seconds, ttl_s: Seconds, is_negative: Mask) -> Mask:
        """Which entries are no longer fresh but stay yet."""
        if not self._stay_s:
            return np.zeros(len(ages_s), np.bool_)
        return ~is_negative & (ages_s >= ttl_s) & (ages_s < ttl_s + self._stay_s)

    def is_over(self, ages_s: Seconds, hashes: Hashes, is_negative: Mask) -> Mask:
        """Which entries are of no use any more."""
        ttl_s = self.ttl_s(hashes, is_negative)
        return (ages_s >= ttl_s) & ~self.is_stale(ages_s, ttl_s, is_negative)
