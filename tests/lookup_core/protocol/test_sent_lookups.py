"""What a channel has sent, in order, until it is answered."""

import pyarrow as pa
import pytest

from lookup_core.protocol.sent_lookups import QuestionId, SentKeys, SentLookups, SentWatermark


def asked(question: int, count: int = 2) -> SentKeys:
    """Keys of a question."""
    return SentKeys(QuestionId(question), pa.record_batch({"k": list(range(count))}), 1.0)


@pytest.fixture
def sent() -> SentLookups:
    """Two lookups with watermarks before, between and behind them."""
    sent = SentLookups()
    sent.mark(SentWatermark(10))
    sent.add(asked(1))
    sent.mark(SentWatermark(20))
    sent.add(asked(2))
    sent.mark(SentWatermark(30))
    return sent


def test_everything_unanswered_is_sent_again(sent: SentLookups) -> None:
    """In the same order, with the watermarks where they were; sequences begin anew."""
    assert sent.restart() == [
        SentWatermark(10),
        asked(1),
        SentWatermark(20),
        asked(2),
        SentWatermark(30),
    ]
    assert sent.record_count == 0
    assert sent.add(asked(3)) == 1


def test_answered_lookups_are_not_repeated(sent: SentLookups) -> None:
    """Of the watermarks with nothing before them only the last is needed."""
    sent.remove(1)

    sent.check_invariants()
    assert sent.restart() == [SentWatermark(20), asked(2), SentWatermark(30)]


def test_answers_out_of_order_leave_the_rest(sent: SentLookups) -> None:
    """What was answered ahead of others is not sent again; the watermarks keep their places."""
    sent.remove(2)

    sent.check_invariants()
    assert sent.restart() == [SentWatermark(10), asked(1), SentWatermark(20), SentWatermark(30)]


def test_watermark_survives_all_answers(sent: SentLookups) -> None:
    """A new connection learns the last watermark even if nothing waits; it is given once."""
    sent.remove(2)
    sent.remove(1)

    sent.check_invariants()
    assert sent.restart() == [SentWatermark(30)]
    assert sent.restart() == []


def test_lookups_are_found_by_question(sent: SentLookups) -> None:
    """A question may have been sent in several lookups."""
    sequence = sent.add(asked(1, count=5))

    assert sent.sequences_of(QuestionId(1)) == [1, sequence]
    assert sent.get(sequence) == asked(1, count=5)
    assert sent.get(99) is None
    assert sent.record_count == 9


def test_parts_know_where_they_stand() -> None:
    """Splitting keys keeps all of them, in order, with their place in the question."""
    first, rest = asked(1, count=5).split(2)
    middle, last = rest.split(1)

    assert [(part.start, part.keys.column(0).to_pylist()) for part in (first, middle, last)] == [
        (0, [0, 1]),
        (2, [2]),
        (3, [3, 4]),
    ]
