"""Repeating events are held back by what they are, and the log says how many were."""

import pytest
from structlog import DropEvent

from service.observability.logs import MAX_SUBJECTS, WINDOW_S, LogRateLimit
from tests.hand_clock import HandClock

EVENT = {"event": "backend.failed", "code": "timeout"}


def test_events_up_to_the_limit_pass() -> None:
    """The first events of a window are logged as they are."""
    limit = LogRateLimit(2, HandClock())

    assert [_logged(limit, EVENT), _logged(limit, EVENT)] == [EVENT, EVENT]


def test_events_over_the_limit_are_dropped() -> None:
    """What repeats within the window is held back."""
    limit = LogRateLimit(1, HandClock())
    _logged(limit, EVENT)

    with pytest.raises(DropEvent):
        _logged(limit, EVENT)


def test_next_window_tells_what_was_dropped() -> None:
    """The first event after a silence says how many were held back, once."""
    clock = HandClock()
    limit = LogRateLimit(2, clock)
    for _ in range(2):
        _logged(limit, EVENT)
    for _ in range(3):
        with pytest.raises(DropEvent):
            _logged(limit, EVENT)

    clock.now_s = WINDOW_S

    assert _logged(limit, EVENT) == {**EVENT, "suppressed": 3}
    assert _logged(limit, EVENT) == EVENT


@pytest.mark.parametrize("other", [{"code": "internal"}, {"peer": "::1"}, {"event": "other"}])
def test_other_subjects_have_their_own_limit(other: dict[str, str]) -> None:
    """One code or peer that floods the log does not silence another."""
    limit = LogRateLimit(1, HandClock())
    _logged(limit, EVENT)

    assert _logged(limit, {**EVENT, **other}) == {**EVENT, **other}


def test_memory_is_bounded() -> None:
    """Callers who are always new make the oldest subject be forgotten, not the memory grow."""
    limit = LogRateLimit(1, HandClock())
    _logged(limit, EVENT)

    for peer in range(MAX_SUBJECTS):
        _logged(limit, {**EVENT, "peer": str(peer)})

    assert _logged(limit, EVENT) == EVENT


def _logged(limit: LogRateLimit, event: dict[str, str]) -> object:
    return limit(None, "warning", dict(event))
