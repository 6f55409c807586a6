"""What a client has ready and may not send yet."""

import pyarrow as pa

from lookup_core.errors import ErrorCode
from lookup_core.protocol.backlog import Backlog
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys, SentWatermark

KEY = pa.schema({"id": pa.utf8()})


def asked(question: int, *keys: str) -> SentKeys:
    """A question's keys."""
    return SentKeys(QuestionId(question), pa.record_batch([pa.array(keys)], KEY), 9.0)


def drained(backlog: Backlog) -> list[tuple[int, list[str]] | int]:
    """All entries in order, in short."""
    found: list[tuple[int, list[str]] | int] = []
    while backlog:
        backlog.check_invariants()
        head = backlog.head
        backlog.pop()
        if isinstance(head, SentWatermark):
            found.append(head.watermark_ms)
        else:
            found.append((head.start, head.keys.column(0).to_pylist()))
    assert backlog.records == 0
    return found


def test_entries_leave_in_order() -> None:
    """Keys and watermarks leave as they came; only keys are counted."""
    backlog = Backlog()
    for entry in (asked(1, "a", "b"), SentWatermark(5), asked(2, "c")):
        backlog.add(entry)

    assert backlog.records == 3
    assert drained(backlog) == [(0, ["a", "b"]), 5, (0, ["c"])]


def test_part_of_the_head_is_taken() -> None:
    """What does not fit stays in front, with the places that it had."""
    backlog, head = Backlog(), asked(1, "a", "b", "c")
    backlog.add(head)

    assert backlog.take(head, 2).keys.column(0).to_pylist() == ["a", "b"]
    assert backlog.records == 1
    assert drained(backlog) == [(2, ["c"])]


def test_sent_before_stands_in_front() -> None:
    """What has to be sent again goes before what was never sent, in its order."""
    backlog = Backlog()
    backlog.add(asked(3, "z"))

    backlog.put_back([asked(1, "a"), SentWatermark(5), asked(2, "b")])

    assert drained(backlog) == [(0, ["a"]), 5, (0, ["b"]), (0, ["z"])]


def test_dropped_question_leaves_the_others() -> None:
    """Only the keys of the question go; watermarks and the other questions stay."""
    backlog = Backlog()
    for entry in (asked(1, "a"), SentWatermark(5), asked(2, "b"), asked(1, "c")):
        backlog.add(entry)

    backlog.drop(QuestionId(1))

    assert drained(backlog) == [5, (0, ["b"])]


def test_cleared_backlog_is_empty() -> None:
    """Nothing waits any more."""
    backlog = Backlog()
    backlog.add(asked(1, "a"))

    backlog.clear()

    assert not backlog
    assert drained(backlog) == []


def test_too_large_keys_are_answered() -> None:
    """They are taken out with an answer of their own; what is around them keeps its places."""
    backlog, large = Backlog(), "x" * 5000
    for entry in (asked(1, large, "a", "b", large), SentWatermark(5), asked(2, "c")):
        backlog.add(entry)

    (refused,) = backlog.refuse_too_large(4096)

    assert refused.question == QuestionId(1)
    assert refused.answer.positions.tolist() == [0, 3]
    assert refused.answer.errors == dict.fromkeys([0, 3], ErrorCode.KEY_TOO_LARGE)
    assert drained(backlog) == [(1, ["a", "b"]), 5, (0, ["c"])]
    assert backlog.refuse_too_large(4096) == []
