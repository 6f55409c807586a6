"""What is reserved for an answer, by the answers seen so far."""

import pytest

from lookup_core.protocol.answer_budget import AnswerSize

KIB = 1024


def learned(*record_bytes: int) -> AnswerSize:
    """After answers to ten records each, of so many bytes a record."""
    size = AnswerSize()
    for each in record_bytes:
        size.on_rows(10, 10 * each)
    return size


def test_first_guess_is_cautious() -> None:
    """Before any answer a row may have 1 MiB, or what it is told."""
    assert AnswerSize().record_bytes == 1024 * KIB
    assert AnswerSize(1000).record_bytes == 1000


def test_first_row_replaces_the_guess() -> None:
    """One answer with rows says more than a guess; its deviation is not known yet."""
    assert learned(100).record_bytes == 301


def test_equal_rows_need_no_margin() -> None:
    """The longer all answers are alike, the nearer the guess comes to them, from above."""
    assert learned(*[100] * 30).record_bytes == pytest.approx(100, abs=2)


def test_larger_rows_are_believed_at_once() -> None:
    """Two answers of another size are enough not to fall short any more."""
    assert learned(*[100] * 30, 100_000, 100_000).record_bytes > 100_000


def test_one_large_row_is_forgotten() -> None:
    """Caution costs parallelism, so it ends when nothing bears it out."""
    assert learned(*[100] * 30, 100_000, *[100] * 60).record_bytes < 1000


def test_missing_rows_make_less_cautious() -> None:
    """While no row was seen at all the guess becomes smaller, but never small."""
    size = AnswerSize()
    guesses = []
    for records in (1, 2, 97):
        size.on_no_rows(records)
        guesses.append(size.record_bytes)

    assert guesses == [896 * KIB, int(896 * KIB * 49 / 64), 4 * KIB]


def test_missing_rows_let_large_ones_fade() -> None:
    """Few absences leave the caution; after hundreds of them large rows are not expected."""
    size = learned(3_000_000)
    guesses = []
    for records in (0, 10, 90, 900):
        size.on_no_rows(records)
        guesses.append(size.record_bytes)

    assert guesses[1] > guesses[0] * 0.8
    assert guesses[2] < guesses[0] * 0.25
    assert guesses[3] < 4 * KIB


def test_missing_rows_say_nothing_about_small_ones() -> None:
    """What is known about small rows stays: the next records may have some."""
    size = learned(*[1000] * 30)
    for _ in range(100):
        size.on_no_rows(1)

    assert size.record_bytes == learned(*[1000] * 30).record_bytes
