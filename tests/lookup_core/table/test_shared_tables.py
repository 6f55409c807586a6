"""Reads of a full table that changes meanwhile: every order of loads and stores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from lookup_core.settings import CacheSettings
from lookup_core.table.full_reader import FullReader, TableState
from lookup_core.table.full_table import FullTable
from tests.lookup_core.cache.interleaving import WatchedMemory
from tests.lookup_core.cache.row_caches import KINDS
from tests.lookup_core.table.full_tables import CHANGED, GONE, NumberTable, ReadMemory

NOW = 100.0
MISSING = "missing"
Step = Callable[[NumberTable, float], object]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a key."""

    value: object  # of its row, MISSING, or None
    as_of: float = -np.inf  # since when it may have changed


@dataclass(frozen=True, slots=True)
class Case:
    """Changes of a table one after another, of which the first one loads it."""

    steps: Sequence[Step]
    keys: Sequence[int] = (1, 2)


def load(*numbers: int, generation: int = 0, unseen: Sequence[int] = ()) -> Step:
    """A step that loads these keys with values of this generation, and no others."""

    def step(table: NumberTable, now: float) -> None:
        reload = table.table.begin_reload(now)
        table.read(reload, [(number, number + 1_000 * generation) for number in numbers])
        table.finish(reload, unseen=table.kind.keys(unseen).hashes)

    return step


def apply(*changes: tuple[int, int | str]) -> Step:
    """A step that applies changes."""
    return lambda table, now: table.apply(changes, now=now)


def begin_first_load(table: NumberTable, now: float) -> None:
    """A step in which a change comes before a load ends."""
    table.table.begin_reload(now)
    table.apply([(1, 1_001)], now=now)


MANY = range(1, 601)
CASES = {
    "change": Case([load(1, 2), apply((1, 1_001))]),
    "deletion": Case([load(1, 2), apply((1, GONE))]),
    "insertion": Case([load(2), apply((1, 1))]),
    "unknown row": Case(
        [load(1, 2), apply((1, CHANGED)), lambda t, now: t.fill({1: 1_001}, now=now)]
    ),
    "unseen change": Case([load(1, 2), load(1, 2, unseen=[2]), apply((2, 1_002))]),
    "few other rows": Case([load(1, 2, 3, 4, 5), load(1, 3, 4, 5, generation=1)]),
    "more rows": Case([load(1, 2), load(*range(2, 20), generation=1)]),
    "more places": Case(
        [load(*MANY), apply((1, 1_001), *((number, number) for number in range(700, 720)))],
        keys=(1, 2, 700),
    ),
    "clear": Case([load(1, 2), lambda table, _: table.table.clear(), load(1)]),
    "change before the first load": Case([begin_first_load, load(1, 2)]),
    "change before a load": Case(
        [load(1, 2), lambda table, _: table.table.clear(), begin_first_load, load(1, 2)]
    ),
}


@dataclass(frozen=True, slots=True)
class Trusting:
    """A fault: the state of a table for a reader that takes each view for the published one."""

    memory: WatchedMemory
    map_number: int

    @property
    def changes(self) -> int:
        """See `TableState`."""
        return self.memory.changes

    @property
    def fresh_at(self) -> float:
        """See `TableState`."""
        return self.memory.fresh_at


def state_of(memory: WatchedMemory, _number: int) -> TableState:
    """The state of the table, as readers have it."""
    return memory


State = Callable[[WatchedMemory, int], TableState]


def wrong_answers(name: str, case: Case, *, is_weak: bool, state: State = state_of) -> list[str]:
    """What readers find that was not known of their keys during the read, or is said to be newer.

    After the last step, they must find everything.
    """
    memory = WatchedMemory(is_weak=is_weak)
    kind = KINDS[name]
    whole = FullTable(kind.schema, CacheSettings(), memory)
    table = NumberTable(kind, whole, ReadMemory())
    times: list[int] = []
    states: list[list[object]] = []
    wrong: list[str] = []
    for at, step in enumerate(case.steps):
        step(table, at + 1.0)
        table.table.confirm(at + 1.5)
        times.append(memory.stores)
        at_rest = kind.found(whole, whole.probe(kind.keys(case.keys), NOW))
        states.append([each[0] if isinstance(each, tuple) else each for each in at_rest])
    for at, time in enumerate(times):
        for keys in zip(case.keys) if is_weak else [case.keys]:
            asked = [case.keys.index(key) for key in keys]
            reading = partial(read, table, memory, keys, state)
            for found in memory.readings(reading, since=time):
                known = [[state[each] for state in states] for each in asked]
                if not all(is_true(each, at, k) for each, k in zip(found, known, strict=True)):
                    wrong.append(f"{found} after step {at}, when {known}")
            if at == len(times) - 1 and [each.value for each in found] != [k[-1] for k in known]:
                wrong.append(f"{found} at rest, when {known}")
    return wrong


def is_true(found: Known, at: int, values: Sequence[object]) -> bool:
    """Whether this was known after step `at` or later, and not yet replaced when confirmed."""
    if found.value is None:
        return True
    last = len(values) - 1
    return any(
        found.value == values[step] and (step == last or found.as_of < step + 2.5)
        for step in range(at, len(values))
    )


def read(
    table: NumberTable, memory: WatchedMemory, keys: Sequence[int], state: State
) -> list[Known]:
    """What a reader finds."""
    number, view = memory.view()
    reader = FullReader(view, state(memory, number), memory.fence, number=number)
    found = reader.read(table.kind.keys(keys), ["position"], NOW)
    known = [Known(None) for _ in keys]
    values = found.rows.rows.column(0).to_pylist()
    for at, value, age_s in zip(found.rows.positions, values, found.rows.ages_s, strict=True):
        known[at] = Known(value, NOW - age_s)
    for at, age_s in zip(found.missing.positions, found.missing.ages_s, strict=True):
        assert known[at].value is None
        known[at] = Known(MISSING, NOW - age_s)
    return known


@pytest.mark.parametrize(
    ("kind", "is_weak"),
    [
        ("text", False),
        ("number", True),
        pytest.param("number", False, marks=pytest.mark.full),
        pytest.param("text", True, marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_reader_knows_what_the_table_knows(kind: str, name: str, *, is_weak: bool) -> None:
    """Wherever its loads are, a read finds what is known of its key during it, or nothing."""
    assert wrong_answers(kind, CASES[name], is_weak=is_weak) == []


@pytest.mark.parametrize("name", ["few other rows", "more places", "clear"])
def test_trust_in_former_views_is_found(name: str) -> None:
    """A reader that does not check that its view is published finds wrong entries."""
    assert wrong_answers("number", CASES[name], is_weak=False, state=Trusting)
