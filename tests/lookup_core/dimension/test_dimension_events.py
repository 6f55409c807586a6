"""The values that go into a dimension's state and come out of it."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.dimension.dimension_events import Delivery, Effects
from lookup_core.dimension.flight_table import LookupId


def test_effects_share_nothing() -> None:
    """What one event brings does not turn up in the effects of another."""
    answer = rowless_answer(np.zeros(1, np.int32), Outcome.MISSING)

    Effects().deliveries.append(Delivery(LookupId(1), answer, is_last=True))

    assert Effects() == Effects([], [])


def test_events_never_change() -> None:
    """Whoever was handed an event can rely on it."""
    effects = Effects()

    with pytest.raises(FrozenInstanceError):
        effects.cancelled = []  # type: ignore[misc]  # that it is refused is the point
