"""The terminal outcomes: their numbers on the wire, their words, and which of them have a row."""

from lookup_core.answer import Outcome


def test_numbers_never_change() -> None:
    """The numbers are those of the wire protocol; old and new peers mean the same by them."""
    assert {outcome.name: outcome.value for outcome in Outcome} == {
        "HIT": 0,
        "FETCHED": 1,
        "MISSING": 2,
        "STALE": 3,
        "DEFAULT": 4,
        "TIMEOUT": 5,
        "ERROR": 6,
    }


def test_label_is_lower_case_word() -> None:
    """Metrics, JSON and status columns show the name in lower case."""
    labels = [outcome.label for outcome in Outcome]

    assert labels == ["hit", "fetched", "missing", "stale", "default", "timeout", "error"]


def test_some_outcomes_carry_rows() -> None:
    """Hits, fetched, stale and default answers have a row; the others never have one."""
    with_row = {outcome for outcome in Outcome if outcome.has_row}

    assert with_row == {Outcome.HIT, Outcome.FETCHED, Outcome.STALE, Outcome.DEFAULT}
