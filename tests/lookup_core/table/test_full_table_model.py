"""The full table against a dictionary, in random interleavings of loads, changes and queries."""

from itertools import cycle

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.table.reload import Reload
from tests.lookup_core.cache.row_caches import KINDS
from tests.lookup_core.hypothesis_runs import example_counts, run_model
from tests.lookup_core.table.full_tables import CHANGED, GONE, NOTHING_UNSEEN, NumberTable

KEYS = range(12)
NUMBERS = st.sampled_from(KEYS)
VALUES = st.integers(0, 1)  # few, so that many rows do not change
HOLE = "hole"
ROWS = st.lists(st.tuples(NUMBERS, VALUES), max_size=12)
CHANGES = st.lists(st.tuples(NUMBERS, VALUES | st.sampled_from([GONE, CHANGED])), max_size=8)


class FullTableMachine(RuleBasedStateMachine):
    """A table against {key: (value or HOLE, since)}; all other keys have no row."""

    @initialize(name=st.sampled_from(sorted(KINDS)))
    def start(self, name: str) -> None:
        """Choose a kind of dimension."""
        self.kind = KINDS[name]
        self.has_exact_hashes = self.kind.hash_count is None
        self.number_table = NumberTable.empty(self.kind)
        self.table = self.number_table.table
        self.held: dict[int, tuple[int | str, float]] = {}
        self.suspects: set[int] = set()
        self.is_whole = False
        self.fresh_at = self.now = 0.0
        self.reload: Reload | None = None
        self.aborted: list[Reload] = []
        self.turns = cycle(KEYS)

    @rule()
    def begin(self) -> None:
        """Begin a reload; another one is aborted."""
        self._abort()
        self.reload = self.table.begin_reload(self.now)
        self.began_at = self.now
        self.picture: dict[int, int | str] = {}
        self.touched: set[int] = set()

    @precondition(lambda self: self.reload is not None)
    @rule(rows=ROWS)
    def read(self, rows: list[tuple[int, int]]) -> None:
        """The reload reads a batch, in which a key may occur twice."""
        assert self.reload is not None
        self.number_table.read(self.reload, rows)
        for key, value in rows:
            self.picture[key] = HOLE if key in self.picture else value

    @rule(
        first=ROWS, between=CHANGES, fetched=st.sets(NUMBERS), second=ROWS, unseen=st.sets(NUMBERS)
    )
    def load(
        self,
        first: list[tuple[int, int]],
        between: list[tuple[int, int | str]],
        *,
        fetched: set[int],
        second: list[tuple[int, int]],
        unseen: set[int],
    ) -> None:
        """A whole reload, with changes and queries in between."""
        self.begin()
        self.read(first)
        self.apply(between)
        self.fill(sorted(fetched), sum(first[0]) if first else 0)
        self.read(second)
        self.finish(unseen)

    @precondition(lambda self: self.reload is not None)
    @rule(unseen=st.sets(NUMBERS, max_size=3))
    def finish(self, unseen: set[int]) -> None:
        """The reload counts for keys that no change has touched, and that it shows."""
        assert self.reload is not None
        unseen = unseen if self.has_exact_hashes else set()
        self.number_table.finish(self.reload, unseen=self.kind.keys(sorted(unseen)).hashes)
        self.suspects = unseen - self.touched
        kept = {key: held for key, held in self.held.items() if key in self.touched}
        loaded = {
            key: (value, self.began_at)
            for key, value in self.picture.items()
            if key not in self.touched | unseen
        }
        self.held = kept | loaded
        self.is_whole, self.reload = True, None
        self.fresh_at = max(self.fresh_at, self.began_at)

    @rule()
    def finish_aborted(self) -> None:
        """A reload that was aborted or replaced ends without effect."""
        for reload in self.aborted:
            assert not self.table.finish_reload(reload, unseen=NOTHING_UNSEEN)

    @rule()
    def abort(self) -> None:
        """The former state stays."""
        reload = self.reload
        self._abort()
        for each in [*self.aborted, reload]:
            if each is not None:  # else none is under way; former ones stay aborted
                self.table.abort_reload(each)

    @rule(changes=CHANGES)
    def apply(self, changes: list[tuple[int, int | str]]) -> None:
        """Apply changes in their order."""
        self.number_table.apply(changes, now=self.now)
        for key, value in changes:
            self._change(key, HOLE if value == CHANGED else value)

    @rule(keys=st.lists(NUMBERS))
    def invalidate(self, keys: list[int]) -> None:
        """Make keys unknown."""
        known = {key for key in keys if self.held.get(key, (HOLE, 0))[0] != HOLE}
        count = self.table.invalidate(self.kind.keys(keys))
        assert count == (len(known) if self._is_followed() else 0)
        for key in keys:
            self._change(key, HOLE)

    @rule(keys=st.lists(NUMBERS, unique=True), choice=st.integers(0, 2**15 - 1))
    def fill(self, keys: list[int], choice: int) -> None:
        """A query fills holes only; a suspect is filled with a row only."""
        has_row = {key: bool(choice >> at % 15 & 1) for at, key in enumerate(keys)}
        missing = [key for key in keys if not has_row[key]]
        found = {key: 7 for key in keys if has_row[key]}
        is_open = {key for key in keys if self.held.get(key, ("", 0))[0] == HOLE}
        is_open |= {key for key in found if key in self.suspects and key not in self.held}
        self.number_table.fill(found, missing, now=self.now)
        for key in is_open:
            self.held.pop(key, None)
            if has_row[key]:
                self.held[key] = (7, self.now)

    @rule()
    def clear(self) -> None:
        """The table is cleared."""
        rows = [key for key, (value, _) in self.held.items() if value != HOLE]
        assert self.table.clear() == len(rows)
        self._abort()
        self.held, self.suspects, self.is_whole = {}, set(), False

    @rule(seconds=st.integers(1, 5), is_confirmed=st.booleans())
    def wait(self, seconds: int, *, is_confirmed: bool) -> None:
        """Time passes."""
        self.now += seconds
        if is_confirmed:
            self.table.confirm(self.now)
            self.fresh_at = self.now

    @invariant()
    def knows_the_same(self) -> None:
        """All keys are as in the dictionary, also one looked up alone; ages are within bounds."""
        if not hasattr(self, "table"):
            return
        self.table.check_invariants()
        expected = [self._expected(key) for key in KEYS]
        assert self.number_table.found(KEYS, now=self.now) == expected
        probe = self.table.peek(self.kind.keys(KEYS), self.now)
        alone = next(self.turns)
        hit = self.number_table.hit(alone, now=self.now)
        assert hit == (expected[alone] if probe.is_row[alone] else None)
        for key in KEYS:
            if isinstance(expected[key], tuple):
                least_s = min(self.now - self.held[key][1], self.now - self.fresh_at)
                assert least_s <= probe.ages_s[key] <= self.now - self.fresh_at
        count = sum(value != HOLE for value, _ in self.held.values())
        assert self.table.statistics().rows == count
        assert self.table.hole_count == len(self.held) - count + len(self.suspects)

    def _is_followed(self) -> bool:
        return self.is_whole or self.reload is not None

    def _change(self, key: int, value: int | str) -> None:
        if not self._is_followed():
            return
        if self.reload is not None:
            self.touched.add(key)
        self.suspects.discard(key)
        self.held.pop(key, None)
        if value != GONE:
            self.held[key] = (value, self.now)

    def _abort(self) -> None:
        if self.reload is not None:
            self.aborted.append(self.reload)
            self.reload = None

    def _expected(self, key: int) -> object:
        if not self.is_whole:
            return None
        if key not in self.held:
            return None if key in self.suspects else "missing"
        value = self.held[key][0]
        return None if isinstance(value, str) else self.kind.row(value)


@example_counts(quick=15, full=200)
def test_table_agrees_with_a_dictionary(examples: int) -> None:
    """In any order of loads, changes and queries, each key has its row, no row, or is unknown."""
    run_model(FullTableMachine, examples=examples, steps=30)
