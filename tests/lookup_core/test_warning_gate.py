"""Warnings that are written, of those that could be."""

from lookup_core.warning_gate import WarningGate


def test_reason_is_warned_of_every_30_s() -> None:
    """As long as nothing changes the log gets two lines a minute."""
    gate = WarningGate()

    due = [now for now in range(100) if gate.is_due("down", float(now))]

    assert due == [0, 30, 60, 90]


def test_other_reason_is_warned_of_at_once() -> None:
    """What is news is written, also between two lines of another reason."""
    gate = WarningGate()

    assert [gate.is_due(reason, 0.0) for reason in ("down", "forbidden")] == [True, True]


def test_alternating_reasons_are_no_news() -> None:
    """Two faults that take turns are two lines, not one at each turn."""
    gate = WarningGate()

    due = [gate.is_due(("slow", "down")[turn % 2], turn / 10) for turn in range(100)]

    assert due == [True, True] + [False] * 98


def test_fault_after_a_success_is_news() -> None:
    """What was over and is there again is written again."""
    gate = WarningGate()
    gate.is_due("down", 0.0)

    gate.on_success()

    assert gate.is_due("down", 1.0)
