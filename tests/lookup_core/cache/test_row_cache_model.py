"""The cache against a dict, through any course of fills, probes, invalidations and time.

A roomy cache knows exactly what the dict knows; a small one less, but never anything else.
"""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lookup_core.statistics import EvictionReason
from tests.lookup_core.cache.row_caches import KINDS, NEGATIVE_TTL_S, OVERHEAD_BYTES, TTL_S

ROOMY = 2**20
SIZES = st.sampled_from([OVERHEAD_BYTES + 300, OVERHEAD_BYTES + 2_000, ROOMY, ROOMY])
numbers = st.lists(st.integers(0, 40), max_size=15, unique=True)


class RowCacheMachine(RuleBasedStateMachine):
    """A cache against {number: (value or None, when)}."""

    @initialize(name=st.sampled_from(sorted(KINDS)), max_bytes=SIZES, keeps_absences=st.booleans())
    def start(self, name: str, max_bytes: int, *, keeps_absences: bool) -> None:
        """Any kind of dimension, any size."""
        self.kind = KINDS[name]
        self.negative_ttl_s = NEGATIVE_TTL_S if keeps_absences else 0.0
        self.cache = self.kind.cache(max_bytes=max_bytes, negative_ttl_s=self.negative_ttl_s)
        self.max_bytes = max_bytes
        self.held: dict[int, tuple[int | None, float]] = {}
        self.now = 0.0
        self.puts = 0
        self.value = 0

    @rule(keys=numbers, choice=st.integers(0, 2**15 - 1))
    def fill(self, keys: list[int], choice: int) -> None:
        """Keep rows of some keys and the absence of the others."""
        has_row = np.array([choice >> at & 1 for at in range(len(keys))], np.bool_)
        self.value += 1
        rows = self.kind.rows([self.value] * int(has_row.sum()))
        self.cache.fill(self.kind.keys(keys), has_row, rows=rows, read_at=self.now, now=self.now)
        kept = [key for key, has in zip(keys, has_row, strict=True) if has or self.negative_ttl_s]
        self.puts += len(kept)
        for key in kept:
            value = self.value if has_row[keys.index(key)] else None
            self.held[key] = (value, self.now)

    @rule(first=st.integers(50, 1_000), count=st.sampled_from([20, 400]))
    def flood(self, first: int, count: int) -> None:
        """Keep many rows."""
        keys = range(first, first + count)
        self.value += 1
        rows = self.kind.rows([self.value] * count)
        self.cache.fill(
            self.kind.keys(keys),
            np.ones(count, np.bool_),
            rows=rows,
            read_at=self.now,
            now=self.now,
        )
        self.puts += count
        self.held |= dict.fromkeys(keys, (self.value, self.now))

    @rule(keys=st.lists(st.integers(0, 60)), leaves_trace=st.booleans())
    def ask(self, keys: list[int], *, leaves_trace: bool) -> None:
        """Ask for keys, duplicates and strangers included."""
        look = self.cache.probe if leaves_trace else self.cache.peek
        probe = look(self.kind.keys(keys), self.now)
        found = self.kind.found(self.cache, probe)
        expected = [self._expected(key) for key in keys]
        if self.max_bytes == ROOMY:
            assert found == expected
        else:
            assert all(one in {None, all_} for one, all_ in zip(found, expected, strict=True))
        is_known = probe.is_row | probe.is_missing
        ages = [self.now - self.held[keys[at]][1] for at in np.flatnonzero(is_known)]
        assert probe.ages_s[is_known].tolist() == ages

    @rule(keys=st.lists(st.integers(0, 60)))
    def invalidate(self, keys: list[int]) -> None:
        """Forget keys."""
        count = self.cache.invalidate(self.kind.keys(keys))
        known = {key for key in keys if key in self.held}
        for key in known:
            del self.held[key]
        assert count == len(known) if self.max_bytes == ROOMY else count <= len(known)

    @rule()
    def clear(self) -> None:
        """Forget all."""
        assert self.cache.clear() <= len(self.held)
        self.held.clear()

    @rule(quarters=st.integers(0, 12))
    def wait(self, quarters: int) -> None:
        """Let time pass."""
        self.now += quarters / 4

    @invariant()
    def adds_up(self) -> None:
        """Within the bytes, and what was put is held, or has gone for a reason."""
        if not hasattr(self, "cache"):
            return
        self.cache.check_invariants()
        statistics = self.cache.statistics()
        gone = sum(statistics.evictions.values())
        assert statistics.rows <= len(self.held)
        assert statistics.rows + gone <= self.puts
        if self.max_bytes == ROOMY:
            assert (statistics.rows, statistics.rows + gone) == (len(self.held), self.puts)
            assert not statistics.evictions[EvictionReason.SIZE]

    def _expected(self, key: int) -> object:
        if key not in self.held:
            return None
        value, loaded_at = self.held[key]
        if self.now - loaded_at >= (self.negative_ttl_s if value is None else TTL_S):
            return None
        return "missing" if value is None else self.kind.row(value)


TestRowCacheMachine = RowCacheMachine.TestCase
TestRowCacheMachine.settings = settings(max_examples=60, stateful_step_count=25)
