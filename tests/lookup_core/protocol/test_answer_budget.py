"""The byte budget of answers, and the estimate of an answer's size."""

import pytest

from lookup_core.protocol.answer_budget import AnswerBudget, AnswerSize

TOTAL_BYTES = 1000
KIB = 1024


def budget_of(*owners: str) -> AnswerBudget[str]:
    """A budget with these connections."""
    budget = AnswerBudget[str](TOTAL_BYTES)
    for owner in owners:
        budget.open(owner)
    return budget


def filled(budget: AnswerBudget[str], owner: str) -> int:
    """How many records of ten bytes are taken one by one until there is no room."""
    count = 0
    while budget.records_that_fit(owner, 1, 10, wanted=1):
        budget.hold(owner, 1, 10)
        count += 1
    return count


def test_connections_leave_room_to_others() -> None:
    """One connection gets half of the budget, the next one half of the rest."""
    budget = budget_of("a", "b", "c")

    assert [filled(budget, owner) for owner in "abc"] == [50, 25, 12]
    budget.check_invariants()


def test_channels_leave_room_to_others() -> None:
    """A channel that used its part blocks no other channel of its connection."""
    budget = budget_of("a")
    filled(budget, "a")

    fitting = [
        budget.records_that_fit("a", channel, record_bytes, wanted=10)
        for channel, record_bytes in ((1, 10), (2, 10), (3, 250), (3, 251))
    ]

    assert fitting == [0, 10, 1, 0]


@pytest.mark.parametrize("record_bytes", [1, TOTAL_BYTES // 10])
def test_one_connection_leaves_a_quarter(record_bytes: int) -> None:
    """A connection takes three quarters at most, whatever the number of its channels."""
    budget = budget_of("a", "b", "c")
    for channel in range(64):
        wanted = TOTAL_BYTES if record_bytes == 1 else 1
        room = budget.records_that_fit("a", channel, record_bytes, wanted=wanted)
        budget.hold("a", channel, room * record_bytes)

    used_bytes = budget.used_bytes
    fitting = []
    for owner in ("b", "c"):
        fitting.append(budget.records_that_fit(owner, 1, TOTAL_BYTES // 2, wanted=1))
        budget.hold(owner, 1, TOTAL_BYTES // 2)

    assert 3 * TOTAL_BYTES // 4 - 64 <= used_bytes <= 3 * TOTAL_BYTES // 4 + 64
    assert fitting == [1, 1]


@pytest.mark.parametrize(
    ("held_bytes", "record_bytes", "wanted", "expected"),
    [(0, 10, 20, 20), (100, 10, 100, 40), (100, 10, 160, 40), (100, 10, 200, 0)],
)
def test_small_parts_do_not_fit(
    held_bytes: int, record_bytes: int, wanted: int, expected: int
) -> None:
    """A part of the wanted records fits if it is a quarter of them at least."""
    budget = budget_of("a")
    budget.hold("a", 1, held_bytes)

    assert budget.records_that_fit("a", 1, record_bytes, wanted=wanted) == expected


def test_channel_without_answers_advances() -> None:
    """A channel without bytes may have one small record, even if the budget is full."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, 5 * TOTAL_BYTES)

    assert budget.records_that_fit("b", 1, TOTAL_BYTES // 64, wanted=50) == 1
    assert budget.records_that_fit("a", 1, 1, wanted=50) == 0


def test_large_records_come_one_by_one() -> None:
    """Of records larger than the budget, one at a time fits on each connection."""
    budget, large = budget_of("a", "b"), 10 * TOTAL_BYTES
    fitting = [budget.records_that_fit("a", 1, large, wanted=1)]
    budget.hold("a", 1, large)
    fitting += [budget.records_that_fit(owner, 2, large, wanted=1) for owner in "ab"]
    budget.release("a", 1, large)

    assert fitting == [1, 0, 1]
    assert budget.records_that_fit("a", 2, large, wanted=1) == 1


def test_released_bytes_make_room() -> None:
    """Released bytes are free for all; more than is held cannot be released."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, TOTAL_BYTES)
    budget.release("a", 1, TOTAL_BYTES - 100)

    assert budget.used_bytes == 100
    assert budget.records_that_fit("b", 1, 10, wanted=1000) == 45
    with pytest.raises(AssertionError):
        budget.release("b", 1, 1)
    budget.check_invariants()
    assert (budget.release("a", 1, 100), budget.used_bytes) == (True, 0)


def test_closed_connection_releases_once() -> None:
    """Closing releases the bytes of a connection once; late answers are not charged."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, 300)
    budget.hold("a", 2, 200)
    budget.hold("b", 1, 1)

    closed = [budget.close("a"), budget.close("a")]
    late = [budget.hold("a", 1, 10), budget.release("a", 1, 10)]

    assert (closed, late, budget.used_bytes) == ([True, False], [False, False], 1)
    budget.check_invariants()


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
