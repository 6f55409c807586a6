"""Model of the row cache: a dict, through any course of fills, probes, bounds and time.

A large cache knows exactly what the dict knows; a small one less, but never anything else.
"""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lookup_core.statistics import EvictionReason
from tests.lookup_core.cache.row_caches import KINDS, NEGATIVE_TTL_S, OVERHEAD_BYTES, TTL_S
from tests.lookup_core.hypothesis_runs import example_counts, run_model

ROOMY = 2**20
SIZES = st.sampled_from([OVERHEAD_BYTES + 300, OVERHEAD_BYTES + 2_000, ROOMY, ROOMY])
few = st.lists(st.integers(0, 14), min_size=1, max_size=15, unique=True)
many = st.integers(50, 1_000).flatmap(
    lambda first: st.sampled_from([range(first, first + 20), range(first, first + 400)])
)
PROBED = [*range(15), 3, 20, *range(50, 1_400, 50)]  # with a duplicate and an unknown key


class RowCacheMachine(RuleBasedStateMachine):
    """A cache against {number: (value or None, when)}."""

    @initialize(
        name=st.sampled_from(sorted(KINDS)),
        max_bytes=SIZES,
        keeps_negative=st.booleans(),
        jitter=st.sampled_from([0.0, 0.5]),
        stay_s=st.sampled_from([0.0, 3.0]),
    )
    def start(
        self, name: str, max_bytes: int, *, keeps_negative: bool, jitter: float, stay_s: float
    ) -> None:
        """Any kind of dimension, any size."""
        self.kind = KINDS[name]
        self.negative_ttl_s = NEGATIVE_TTL_S if keeps_negative else 0.0
        self.jitter, self.stay_s = jitter, stay_s
        self.cache = self.kind.cache(
            max_bytes=max_bytes,
            negative_ttl_s=self.negative_ttl_s,
            ttl_jitter=jitter,
            stay_s=stay_s,
        )
        self.is_roomy = max_bytes == ROOMY
        self.held: dict[int, tuple[int | None, float]] = {}
        self.now = 0.0
        self.puts = 0
        self.value = 0

    @rule(keys=few | many, choice=st.integers(0, 2**15 - 1) | st.just(2**15 - 1))
    def fill(self, keys: Sequence[int], choice: int) -> None:
        """Keep rows of some keys and negative entries of the others."""
        has_row = np.array([choice >> at % 15 & 1 for at in range(len(keys))], np.bool_)
        self.value += 1
        rows = self.kind.rows([self.value] * int(has_row.sum()))
        self.cache.fill(
            self.kind.keys(keys),
            has_row,
            rows=rows,
            read_at=self.now,
            now=self.now,
            settles_later=False,
        )
        for key, has in zip(keys, has_row.tolist(), strict=True):
            self.held.pop(key, None)
            if has or self.negative_ttl_s:
                self.puts += 1
                self.held[key] = (self.value if has else None, self.now)

    @rule(keys=st.lists(st.integers(0, 20)))
    def visit(self, keys: list[int]) -> None:
        """Probe keys, so that they count as visited."""
        assert len(self.cache.probe(self.kind.keys(keys), self.now).slots) == len(keys)

    @rule(key=st.integers(0, 15))
    def hit(self, key: int) -> None:
        """Look up a single key: a hit is what a probe finds, with its age."""
        probe = self.cache.peek(self.kind.keys([key]), self.now)
        (expected,) = self.kind.found(self.cache, probe)
        assert self.kind.hit(self.cache, key, self.now) == (expected if probe.is_row[0] else None)
        if (hit := self.cache.hit(self.kind.key(key), self.now)) is not None:
            assert hit.age_s == probe.ages_s[0]

    @rule(keys=st.lists(st.integers(0, 20), max_size=5))
    def invalidate(self, keys: list[int]) -> None:
        """Invalidate keys."""
        count = self.cache.invalidate(self.kind.keys(keys))
        known = {key for key in keys if key in self.held}
        for key in known:
            del self.held[key]
        assert count == len(known) if self.is_roomy else count <= len(known)

    @rule()
    def clear(self) -> None:
        """Clear the cache."""
        assert self.cache.clear() <= len(self.held)
        self.held.clear()

    @rule(max_bytes=st.sampled_from([0, OVERHEAD_BYTES + 2_000, 2 * OVERHEAD_BYTES, ROOMY]))
    def set_max_bytes(self, max_bytes: int) -> None:
        """Change the bound; the rows that leave count as evicted for pressure."""
        before = self.cache.statistics()
        self.cache.set_max_bytes(max_bytes)
        after = self.cache.statistics()
        pressure = EvictionReason.PRESSURE
        assert after.max_bytes == max_bytes
        assert before.rows - after.rows == after.evictions[pressure] - before.evictions[pressure]
        self.is_roomy = self.is_roomy and max_bytes == ROOMY

    @rule(quarters=st.integers(1, 9))
    def wait(self, quarters: int) -> None:
        """Let time pass."""
        self.now += quarters / 4

    @invariant()
    def adds_up(self) -> None:
        """The bytes are within the bound; every entry put is held, or left for a reason."""
        if not hasattr(self, "cache"):
            return
        self.cache.check_invariants()
        statistics = self.cache.statistics()
        gone = sum(statistics.evictions.values())
        assert statistics.rows <= len(self.held)
        assert statistics.rows + gone <= self.puts
        if self.is_roomy:
            assert (statistics.rows, statistics.rows + gone) == (len(self.held), self.puts)
            assert not statistics.evictions[EvictionReason.SIZE]

    @invariant()
    def finds_the_same(self) -> None:
        """A large cache finds what the dict holds; a small one less, and nothing else."""
        if not hasattr(self, "cache"):
            return
        probe = self.cache.peek(self.kind.keys(PROBED), self.now)
        found = self.kind.found(self.cache, probe)
        expected = [self._expected(key) for key in PROBED]
        is_stale = [self._is_stale(key) for key in PROBED]
        if self.is_roomy:
            assert (found, probe.is_stale.tolist()) == (expected, is_stale)
        assert all(one in {None, all_} for one, all_ in zip(found, expected, strict=True))
        assert (probe.is_stale <= np.array(is_stale, np.bool_)).all()
        known = np.flatnonzero(probe.is_row | probe.is_missing | probe.is_stale)
        assert probe.ages_s[known].tolist() == [self._age_s(PROBED[at]) for at in known]
        assert probe.ttl_s[known].tolist() == [self._ttl_s(PROBED[at]) for at in known]

    def _expected(self, key: int) -> object:
        if key not in self.held:
            return None
        value = self.held[key][0]
        stay_s = 0.0 if value is None else self.stay_s
        if self._age_s(key) >= self._ttl_s(key) + stay_s:
            return None
        return "missing" if value is None else self.kind.row(value)

    def _is_stale(self, key: int) -> bool:
        is_here = self._expected(key) is not None
        return is_here and self._age_s(key) >= self._ttl_s(key)

    def _age_s(self, key: int) -> float:
        return self.now - self.held[key][1]

    def _ttl_s(self, key: int) -> float:
        share = (int(self.kind.keys([key]).hashes[0]) >> 40) / 2**24
        whole_s = self.negative_ttl_s if self.held[key][0] is None else TTL_S
        return whole_s * (1 - self.jitter * share)


@example_counts(quick=12, full=300)
def test_cache_agrees_with_a_dict(examples: int) -> None:
    """A large cache holds what a dict holds; a small one less, and never anything else."""
    run_model(RowCacheMachine, examples=examples, steps=25)
