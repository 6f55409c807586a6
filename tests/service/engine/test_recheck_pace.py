"""Pauses between questions to a store that could not be described."""

import pytest

from lookup_core.errors import ErrorCode
from service.engine.schema_watch import RecheckPace


def pauses(pace: RecheckPace, code: ErrorCode, count: int) -> list[float]:
    """As many pauses after failures of this code, at their longest."""
    return [round(pace.pause_s(code, jitter=1.0), 3) for _ in range(count)]


@pytest.mark.parametrize(
    "code", [ErrorCode.BACKEND_UNAVAILABLE, ErrorCode.CONNECTION_LOST, ErrorCode.TIMEOUT]
)
def test_store_that_is_away_is_asked_often(code: ErrorCode) -> None:
    """It is found within half a second of its return, and the time of one question."""
    assert pauses(RecheckPace(), code, 5) == [0.1, 0.2, 0.4, 0.5, 0.5]


@pytest.mark.parametrize(
    "code", [ErrorCode.BACKEND_AUTH, ErrorCode.TABLE_UNAVAILABLE, ErrorCode.FORBIDDEN]
)
def test_table_that_is_unfit_is_asked_rarely(code: ErrorCode) -> None:
    """The first questions come fast, later ones every 30 s."""
    found = pauses(RecheckPace(), code, 11)

    assert found == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_another_kind_of_trouble_begins_anew() -> None:
    """A store that comes back without its table was not asked for the table before."""
    pace = RecheckPace()
    pauses(pace, ErrorCode.TIMEOUT, 5)

    assert pauses(pace, ErrorCode.FORBIDDEN, 3) == [0.1, 0.2, 0.4]
    assert pauses(pace, ErrorCode.TIMEOUT, 1) == [0.1]


def test_success_begins_anew() -> None:
    """The pause after the next failure is the first one again."""
    pace = RecheckPace()
    pauses(pace, ErrorCode.FORBIDDEN, 5)

    pace.on_success()

    assert pauses(pace, ErrorCode.FORBIDDEN, 1) == [0.1]


def test_jitter_spreads_the_upper_half() -> None:
    """Sidecars that lost the same store do not ask it all at once."""
    found = [RecheckPace().pause_s(ErrorCode.TIMEOUT, jitter=jitter) for jitter in (0.0, 0.5)]

    assert found == pytest.approx([0.05, 0.075])
