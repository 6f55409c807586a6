"""The lookup scheduler: deficit round robin over channels, and the quantum of each channel."""

import pytest

from lookup_core.protocol.lookup_scheduler import (
    CHUNK_S,
    Costs,
    LearnedCosts,
    LookupPart,
    LookupScheduler,
    Quantum,
    Ticket,
)

LATE = 1000.0
HIT_S, MISS_S = 0.2e-6, 4e-6


def turns_of(**lookups: list[int]) -> LookupScheduler[str]:
    """Lookups of this number of records by channel; their tickets count from 1."""
    turns = LookupScheduler[str]()
    for channel, sizes in lookups.items():
        for records in sizes:
            turns.add(channel, records=records, deadline_s=LATE)
    return turns


def carried_out(turns: LookupScheduler[str], *, quantum: int) -> list[tuple[int, int, int]]:
    """(ticket, first record, count) of all parts in their order."""
    parts: list[tuple[int, int, int]] = []
    while turns.head() is not None:
        part = turns.take(quantum=quantum, room=10**6)
        turns.check_invariants()
        parts.append((part.ticket, part.records.start, len(part.records)))
    return parts


@pytest.mark.parametrize(
    ("lookups", "quantum", "parts"),
    [
        ({"a": [5]}, 10, [(1, 0, 5)]),
        (
            {"a": [40], "b": [10, 10]},
            10,
            [*[(1, 0, 10), (2, 0, 10), (1, 10, 10), (3, 0, 10)], (1, 20, 10), (1, 30, 10)],
        ),
        ({"a": [4, 4, 4], "b": [1]}, 8, [(1, 0, 4), (2, 0, 4), (4, 0, 1), (3, 0, 4)]),
        ({"a": [15], "b": [16]}, 10, [(1, 0, 15), (2, 0, 10), (2, 10, 6)]),
    ],
    ids=["small lookup", "two channels", "small lookups", "end of lookup"],
)
def test_channels_take_turns(
    lookups: dict[str, list[int]], quantum: int, parts: list[tuple[int, int, int]]
) -> None:
    """A turn has `quantum` records of any lookups, or half as many more if one ends with it."""
    assert carried_out(turns_of(**lookups), quantum=quantum) == parts


def test_part_fits_the_room() -> None:
    """A part has at most `room` records; the turn of its channel continues."""
    turns = turns_of(a=[9], b=[3])

    part, head = turns.take(quantum=6, room=4), turns.head()

    assert (part, head) == (LookupPart(Ticket(1), range(4)), LookupPart(Ticket(1), range(4, 9)))
    assert carried_out(turns, quantum=6) == [(1, 4, 2), (2, 0, 3), (1, 6, 3)]


def test_stalled_channel_is_passed_over() -> None:
    """A stalled channel keeps its order and is first again when it resumes."""
    turns = turns_of(a=[5], b=[5])
    turns.stall()
    turns.add("a", records=2, deadline_s=LATE)

    before = carried_out(turns, quantum=10)
    turns.add("b", records=1, deadline_s=LATE)
    resumed = [turns.resume(), turns.resume()]

    assert (before, resumed) == ([(2, 0, 5)], [True, False])
    assert carried_out(turns, quantum=10) == [(1, 0, 5), (3, 0, 2), (4, 0, 1)]


def test_stall_ends_the_turn() -> None:
    """A channel that resumes has a whole turn."""
    turns = turns_of(a=[20])
    turns.take(quantum=10, room=4)
    turns.stall()
    turns.resume()

    assert carried_out(turns, quantum=10) == [(1, 4, 10), (1, 14, 6)]


def test_removed_lookup_is_not_carried_out() -> None:
    """Removing returns the remaining records, once; later lookups move up."""
    turns = turns_of(a=[9, 3], b=[1])
    turns.take(quantum=4, room=9)

    assert [turns.remove(Ticket(1)), turns.remove(Ticket(1))] == [range(4, 9), None]
    assert carried_out(turns, quantum=5) == [(3, 0, 1), (2, 0, 3)]
    assert len(turns) == 0


def test_stalled_lookup_may_be_removed() -> None:
    """A stalled channel is gone with its only lookup."""
    turns = turns_of(a=[9])
    turns.stall()

    assert (turns.remove(Ticket(1)), turns.resume()) == (range(9), False)
    turns.check_invariants()


def test_overdue_lookups_are_removed() -> None:
    """A lookup whose deadline passes is removed, stalled or not."""
    turns = LookupScheduler[str]()
    turns.add("a", records=9, deadline_s=3.0)
    turns.add("b", records=5, deadline_s=2.0)
    turns.take(quantum=4, room=9)
    turns.stall()

    assert (turns.pop_expired(1.9), turns.next_deadline()) == ([], 2.0)
    assert turns.pop_expired(3.0) == [
        LookupPart(Ticket(2), range(5)),
        LookupPart(Ticket(1), range(4, 9)),
    ]
    assert (len(turns), turns.head(), turns.next_deadline()) == (0, None, None)


def records_after(pace: Quantum, record_s: float, chunks: int) -> int:
    """The quantum after this number of full chunks at this cost."""
    for _ in range(chunks):
        pace.on_chunk(pace.records, pace.records * record_s)
    return pace.records


@pytest.mark.parametrize(
    ("pace", "record_s", "sizes"),
    [
        (Quantum(), HIT_S, [800, 1600, 3200, 6400, 12800, CHUNK_S / HIT_S]),
        (Quantum(), 0.0, [800, 1600, 3200, 6400, 12800, 20_000, 20_000]),
        (Quantum(), 1.0, [800] * 3),
        (Quantum(1e-6), 1e-6, [4000] * 3),
    ],
    ids=["hits", "no cost", "slow", "steady"],
)  # fmt: skip
def test_quantum_follows_the_cost(pace: Quantum, record_s: float, sizes: list[float]) -> None:
    """A quantum takes about `CHUNK_S`; it doubles at most and stays within its bounds."""
    found = [pace.records, *(records_after(pace, record_s, 1) for _ in sizes[1:])]

    assert found == pytest.approx(sizes, abs=1)


def test_misses_reduce_the_quantum() -> None:
    """Slower lookups reduce the quantum within a few chunks."""
    found = records_after(Quantum(HIT_S), MISS_S, 5)

    assert found == pytest.approx(CHUNK_S / MISS_S, rel=0.1)


def test_fixed_cost_keeps_the_minimum() -> None:
    """Chunks whose fixed cost is too high keep the smallest quantum."""
    pace = Quantum()
    for _ in range(20):
        pace.on_chunk(pace.records, 2 * CHUNK_S + pace.records * HIT_S)

    assert pace.records == 800


def test_small_chunks_count_little() -> None:
    """A small or single slow chunk moves the cost by a part only."""
    small, single = Quantum(HIT_S), Quantum(1e-6)
    before = small.records

    small.on_chunk(20, 0.0002)
    single.on_chunk(4000, 0.012)

    assert small.records > before * 0.9
    assert single.record_s == pytest.approx(2e-6)


def learn(costs: Costs) -> None:
    """Note small and quick rows."""
    costs.size.on_rows(1, 10)
    costs.pace.on_chunk(400, 0.0001)


def known(costs: Costs) -> tuple[int, int]:
    """The quantum and the estimated size."""
    return costs.pace.records, costs.size.record_bytes


def test_channel_starts_with_known_costs() -> None:
    """A channel starts with the costs of the dimension's newest channel, and learns alone."""
    learned = LearnedCosts()
    first = learned.newcomer("customers")
    learn(first)
    second = learned.newcomer("customers")
    at_start = known(second)

    learn(second)

    assert at_start == known(first) != known(Costs())
    assert known(second) != known(first)
    assert known(learned.newcomer("orders")) == known(Costs())
