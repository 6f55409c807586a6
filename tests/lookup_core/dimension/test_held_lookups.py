"""Who waits for which changes, and who need not any longer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.held_lookups import HeldLookups, Released

ADA, BOB = LookupId(1), LookupId(2)


def hold(
    held: HeldLookups,
    lookup_id: LookupId,
    *keys: int,
    event_time_ms: int = 1_000,
    until: float = 10.0,
    known: tuple[int, ...] = (),
) -> None:
    """Let a lookup wait for these keys, of which some have a row that is known."""
    hashes = np.array(keys, np.uint64)
    may_wake = ~np.isin(hashes, np.array(known, np.uint64))
    held.hold(lookup_id, hashes, event_time_ms=event_time_ms, until=until, may_wake=may_wake)


def told(released: list[Released]) -> dict[int, list[int]]:
    """Positions by lookup."""
    return {each.lookup_id: each.positions.tolist() for each in released}


def hashes(*keys: int) -> np.ndarray:
    """Of keys that have changed."""
    return np.array(keys, np.uint64)


def test_watermark_beyond_the_record_releases() -> None:
    """Changes of the record's own time may follow a watermark that is no later."""
    held = HeldLookups()
    hold(held, ADA, 7, 8, event_time_ms=1_000)
    hold(held, BOB, 7, event_time_ms=2_000)

    assert told(held.on_watermark(1_000)) == {}
    assert told(held.on_watermark(1_001)) == {ADA: [0, 1]}
    assert len(held) == 1


def test_change_releases_its_key_alone() -> None:
    """Everybody who misses that row gets it; all other keys wait on."""
    held = HeldLookups()
    hold(held, ADA, 7, 8)
    hold(held, BOB, 9, 7)

    assert told(held.on_changes(hashes(7, 5))) == {ADA: [0], BOB: [1]}
    assert told(held.on_changes(hashes(7))) == {}
    assert told(held.on_watermark(5_000)) == {ADA: [1], BOB: [0]}


def test_last_key_ends_the_waiting() -> None:
    """A lookup of which all keys have changed waits for nothing more."""
    held = HeldLookups()
    hold(held, ADA, 7)

    assert told(held.on_changes(hashes(7))) == {ADA: [0]}
    assert (len(held), held.next_deadline()) == (0, None)


def test_known_row_waits_for_the_watermark() -> None:
    """A change of it may not be the last one before the record."""
    held = HeldLookups()
    hold(held, ADA, 7, 8, known=(7,))

    assert told(held.on_changes(hashes(7, 8))) == {ADA: [1]}
    assert told(held.on_watermark(1_001)) == {ADA: [0]}


def test_waiting_ends_in_time() -> None:
    """What was not told till then is not waited for any longer."""
    held = HeldLookups()
    hold(held, ADA, 7, until=10.0)
    hold(held, BOB, 8, until=20.0)

    assert held.next_deadline() == 10.0
    assert told(held.expire(9.9)) == {}
    assert told(held.expire(10.0)) == {ADA: [0]}
    assert held.next_deadline() == 20.0


def test_leaver_waits_no_longer() -> None:
    """Nothing is released for who has left; others, and strangers, are no matter."""
    held = HeldLookups()
    hold(held, ADA, 7)
    hold(held, BOB, 7)

    held.leave([ADA, LookupId(9)])

    assert told(held.on_changes(hashes(7))) == {BOB: [0]}


def test_all_may_be_released() -> None:
    """At the end nobody is forgotten."""
    held = HeldLookups()
    hold(held, ADA, 7)
    hold(held, BOB, 8)

    assert told(held.release_all()) == {ADA: [0], BOB: [0]}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 5), st.sets(st.integers(0, 4), min_size=1)),
        st.tuples(st.just("watermark"), st.integers(0, 6), st.none()),
        st.tuples(st.just("change"), st.integers(0, 4), st.none()),
        st.tuples(st.just("expire"), st.integers(0, 6), st.none()),
        st.tuples(st.just("leave"), st.integers(1, 8), st.none()),
    )
)


@given(STEPS)
def test_each_key_is_released_once(steps: list[tuple[str, int, set[int] | None]]) -> None:
    """Whatever is told in whatever order, each key that waits is released once, or was left."""
    held, waiting = HeldLookups(), dict[int, set[int]]()
    for step, number, keys in steps:
        released: list[Released] = []
        match step:
            case "hold":
                assert keys is not None
                name = len(waiting) + 1
                waiting[name] = set(range(len(keys)))
                hold(held, LookupId(name), *keys, event_time_ms=number, until=float(number))
            case "watermark":
                released = held.on_watermark(number)
            case "change":
                released = held.on_changes(hashes(number))
            case "expire":
                released = held.expire(float(number))
            case _:
                held.leave([LookupId(number)])
                waiting.get(number, set()).clear()
        for each in released:
            assert set(each.positions.tolist()) <= waiting[each.lookup_id]
            waiting[each.lookup_id] -= set(each.positions.tolist())
        held.check_invariants()
        assert len(held) == sum(map(len, waiting.values()))
