"""The byte budget of answers, and the learned costs of records: size and time."""

import pytest

from lookup_core.protocol.lookup_turns import LookupTurns
from lookup_core.record_costs import AnswerSize, Quantum

TOTAL_BYTES = 1000
KIB = 1024


A, B, C = 1, 2, 3  # connections
PART_S = 0.004  # target for the time of a part
HIT_S, MISS_S = 0.2e-6, 4e-6


@pytest.fixture
def budget() -> LookupTurns:
    """An empty budget."""
    return LookupTurns(TOTAL_BYTES)


def filled(budget: LookupTurns, owner: int) -> int:
    """How many records of ten bytes are taken one by one until there is no room."""
    count = 0
    while budget.records_that_fit(owner, 1, 10, wanted=1):
        budget.change_held(owner, 1, added_bytes=10)
        count += 1
    return count


def test_connections_leave_room_to_others(budget: LookupTurns) -> None:
    """One connection gets half of the budget, the next one half of the rest."""
    assert [filled(budget, owner) for owner in (A, B, C)] == [50, 25, 12]
    budget.check_invariants()


@pytest.mark.parametrize("record_bytes", [1, TOTAL_BYTES // 10])
def test_one_connection_leaves_a_quarter(budget: LookupTurns, record_bytes: int) -> None:
    """A connection takes three quarters at most, whatever the number of its channels."""
    for channel in range(64):
        wanted = TOTAL_BYTES if record_bytes == 1 else 1
        room = budget.records_that_fit(A, channel, record_bytes, wanted=wanted)
        budget.change_held(A, channel, added_bytes=room * record_bytes)

    used_bytes = budget.used_bytes
    fitting = []
    for owner in (B, C):
        fitting.append(budget.records_that_fit(owner, 1, TOTAL_BYTES // 2, wanted=1))
        budget.change_held(owner, 1, added_bytes=TOTAL_BYTES // 2)

    assert 3 * TOTAL_BYTES // 4 - 64 <= used_bytes <= 3 * TOTAL_BYTES // 4 + 64
    assert fitting == [1, 1]


def learned(*record_bytes: int) -> AnswerSize:
    """The estimate after answers of ten records each, with this number of bytes a record."""
    size = AnswerSize()
    for each in record_bytes:
        size.on_rows(10, 10 * each)
    return size


@pytest.mark.parametrize(
    ("size", "record_bytes"),
    [
        (AnswerSize(), 1024 * KIB),  # before any answer
        (AnswerSize(1000), 1000),
        (learned(100), 301),  # mean and four deviations
        (learned(100, 200), 363),
        (learned(*[100] * 30), 101),
        (learned(*[100] * 30, 100_000, 100_000), 185_852),
        (learned(*[100] * 30, 100_000, *[100] * 60), 138),
    ],
)
def test_estimate_follows_the_answers(size: AnswerSize, record_bytes: int) -> None:
    """The estimate is a little above the mean; it grows at once and shrinks slowly."""
    assert size.record_bytes == record_bytes


def test_missing_rows_reduce_the_guess() -> None:
    """Without any row, the first guess becomes smaller, down to 4 KiB."""
    size = AnswerSize()
    guesses = []
    for records in (1, 2, 97):
        size.on_no_rows(records)
        guesses.append(size.record_bytes)

    assert guesses == [896 * KIB, int(896 * KIB * 49 / 64), 4 * KIB]


def test_missing_rows_reduce_large_estimates() -> None:
    """Hundreds of missing rows reduce a large estimate; a small one stays."""
    size, small, guesses = learned(3_000_000), learned(*[1000] * 30), list[int]()
    before = small.record_bytes
    for records in (0, 10, 90, 900):
        size.on_no_rows(records)
        small.on_no_rows(records)
        guesses.append(size.record_bytes)

    assert guesses == [9_000_001, 7_688_618, 1_863_375, 2]
    assert small.record_bytes == before


def records_after(quantum: Quantum, record_s: float, parts: int) -> int:
    """The quantum after this number of full parts at this cost."""
    for _ in range(parts):
        quantum.on_part(quantum.records, quantum.records * record_s)
    return quantum.records


@pytest.mark.parametrize(
    ("quantum", "record_s", "sizes"),
    [
        (Quantum(), HIT_S, [800, 1600, 3200, 6400, 12800, PART_S / HIT_S]),
        (Quantum(), 0.0, [800, 1600, 3200, 6400, 12800, 20_000, 20_000]),
        (Quantum(), 1.0, [800] * 3),
        (Quantum(1e-6, 4000), 1e-6, [4000] * 3),
    ],
    ids=["hits", "no cost", "slow", "steady"],
)  # fmt: skip
def test_quantum_follows_the_cost(quantum: Quantum, record_s: float, sizes: list[float]) -> None:
    """A quantum takes about 4 ms; it doubles at most and stays within its bounds."""
    found = [quantum.records, *(records_after(quantum, record_s, 1) for _ in sizes[1:])]

    assert found == pytest.approx(sizes, abs=1)


def test_misses_reduce_the_quantum() -> None:
    """Slower lookups reduce the quantum within a few parts."""
    found = records_after(Quantum(HIT_S, 20_000), MISS_S, 5)

    assert found == pytest.approx(PART_S / MISS_S, rel=0.1)


def test_small_parts_count_little() -> None:
    """A small or single slow chunk moves the cost by a part only."""
    small, single = Quantum(HIT_S, 20_000), Quantum(1e-6, 4000)
    before = small.records

    small.on_part(20, 0.0002)
    single.on_part(4000, 0.012)

    assert small.records > before * 0.9
    assert single.record_s == pytest.approx(2e-6)
