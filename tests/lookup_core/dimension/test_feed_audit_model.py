"""No false alarm, and a bound for what a feed omits: audits in a simulated world.

A schedule is what happens to one key: commits, their visibility on both servers, reports within the
feed's claim, reads, evictions, audits, stalls and restarts of the feed. Keys of one world share its
clock and its transaction ids. Single rules have scenarios in `test_feed_audit`.
"""

import math
from collections.abc import Iterator
from itertools import chain, product

import numpy as np
import pytest

from lookup_core.dimension.cache_audit import Verdict
from lookup_core.freshness.table_snapshot import IdRelation
from lookup_core.settings import CacheMode
from tests.lookup_core.dimension.audited_world import (
    GRACE_S,
    Reported,
    World,
    half,
    masked,
    no_deletes,
    no_inserts,
)

KEYS = 100  # schedules of a world
STEPS, LONG_STEPS = 60, 600  # of one world, and of each ninth one
LATE_S = 10 * GRACE_S
MANY_WORLDS = [range(first, first + 170) for first in range(0, 1_700, 170)]
each_mode = pytest.mark.parametrize("mode", [CacheMode.PARTIAL, CacheMode.FULL])
each_relation = pytest.mark.parametrize("relation", list(IdRelation))


@each_mode
@each_relation
@pytest.mark.parametrize(
    "seeds",
    [
        range(4),
        pytest.param(range(40), marks=pytest.mark.full),
        # 10**6 schedules over all cases.
        *(pytest.param(seeds, marks=pytest.mark.nightly) for seeds in MANY_WORLDS),
    ],
    ids=str,
)
def test_complete_feed_raises_no_alarm(mode: CacheMode, relation: IdRelation, seeds: range) -> None:
    """Whatever the order of commits, replay, reports and reads, a complete feed is trusted."""
    found = {seed: _found(World(seed, mode, relation, keys=KEYS)) for seed in seeds}

    assert found == dict.fromkeys(seeds, ())


def test_only_overdue_events_raise_alarms() -> None:
    """An event that is later than claim and grace counts as omitted, but only until it arrives."""
    cases = product(range(2), [CacheMode.PARTIAL, CacheMode.FULL], IdRelation)
    worlds = [World(*case, keys=KEYS, claims_too_much_s=LATE_S) for case in cases]
    alarms = list(chain.from_iterable(map(_alarms, worlds)))

    assert alarms
    assert all(alarms)


def _found(world: World) -> tuple[Verdict, ...]:
    steps = LONG_STEPS if world.seed % 9 == 0 else STEPS
    return tuple(world.run(steps))


def _alarms(world: World) -> Iterator[bool]:
    """For each alarm, whether some event was overdue."""
    for verdict in world.run(LONG_STEPS):
        if verdict is not Verdict.RESTORED:
            yield world.is_claim_false


@each_mode
@pytest.mark.parametrize("reports", [no_deletes, no_inserts, half])
def test_incomplete_feed_is_found(mode: CacheMode, reports: Reported) -> None:
    """A feed that omits changes is found, whichever they are."""
    worlds = [World(seed, mode, IdRelation.COMPARABLE, reports=reports) for seed in range(10)]

    assert all(Verdict.INCOMPLETE in world.run(20_000) for world in worlds)


def test_masked_values_are_found() -> None:
    """Events whose values are masked are found, before one is used."""
    worlds = [
        World(seed, CacheMode.FULL, IdRelation.COMPARABLE, reports=masked) for seed in range(10)
    ]

    assert {next(world.run(20_000)) for world in worlds} == {Verdict.UNUSED_VALUES}


@pytest.mark.parametrize(("share", "keys"), [(0.5, 8), (0.1, 50), (0.02, 50)])
def test_audits_are_enough_for_their_bound(share: float, keys: int) -> None:
    """Of a share p of wrong rows, ln(1000)/(p·n) audits of n keys miss all in one case of 1,000."""
    chance = np.random.default_rng(7)
    audits = math.ceil(math.log(1000) / (share * keys))
    world = World(7, CacheMode.PARTIAL, IdRelation.COMPARABLE, keys=500)
    wrong = set(range(int(share * 500)))

    missed = 0
    for _ in range(2_000):
        samples = (world.auditor.sample(chance.random(keys)) for _ in range(audits))
        missed += not any(wrong & set(each["id"].to_pylist()) for each in samples)

    assert missed <= 10  # 2 are expected
