"""Log rate limit of warnings, and well-formed trace parents."""

import pytest

from lookup_core.protocol.frames import TraceParent
from lookup_core.rate_limits import MAX_SUBJECTS, EventRateLimit

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("reasons", "step_s", "due_at"),
    [
        (["down"], 1.0, [0, 30, 60, 90]),
        (["down", "slow"], 1.0, [0, 1, 30, 31, 60, 61, 90, 91]),
        (["down", "slow"], 0.1, [0, 1]),
    ],
)
def test_each_reason_is_logged_every_30_s(
    reasons: list[str], step_s: float, due_at: list[int]
) -> None:
    """The first warning of each reason is logged, and one every 30 s, even if reasons alternate."""
    gate = EventRateLimit()

    due = [at for at in range(100) if gate.is_due(reasons[at % len(reasons)], at * step_s)]

    assert due == due_at


def test_next_window_counts_suppressed_events() -> None:
    """The first events of a window pass; the first of the next one has the number suppressed."""
    limit = EventRateLimit(2, window_s=1.0)

    counts = [limit.admit("down", now) for now in (0.0, 0.2, 0.4, 0.6, 1.0, 1.2, 1.4, 2.0)]

    assert counts == [0, 0, None, None, 2, 0, None, 1]


def test_success_ends_the_interval() -> None:
    """A fault that occurs again after a success is logged at once."""
    gate = EventRateLimit()
    gate.is_due("down", 0.0)

    gate.on_success()

    assert gate.is_due("down", 1.0)


def test_least_recent_subject_is_dropped() -> None:
    """Of too many subjects the least recently seen one is dropped, and logged again at once."""
    gate = EventRateLimit()
    for subject in range(MAX_SUBJECTS):
        gate.is_due(subject, 0.0)
    seen_again = gate.is_due(0, 1.0)

    gate.is_due("new", 2.0)

    assert [seen_again, gate.is_due(0, 3.0), gate.is_due(1, 3.0)] == [False, False, True]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((f"00-{TRACE}-{SPAN}-{flags}", True) for flags in ("00", "01", "ff")),
        ("", False),
        (f"00-{TRACE}-{SPAN}", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE}-{SPAN}-01\n", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
    ],
)
def test_trace_parent_follows_w3c_grammar(text: str, expected: bool) -> None:  # noqa: FBT001
    """A trace parent of version 00 has two ids that are not zero, in lower case, and flags."""
    assert TraceParent(text).is_well_formed is expected
