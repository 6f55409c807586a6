"""What a lookup gets at once."""

from dataclasses import FrozenInstanceError

import pytest

from lookup_core.dimension.flight_table import LookupId
from service.engine.gathering import Submitted


def test_submitted_is_a_value() -> None:
    """Two that say the same are equal, and neither changes."""
    submitted = Submitted(LookupId(1), [], is_done=True)

    assert submitted == Submitted(LookupId(1), [], is_done=True)
    with pytest.raises(FrozenInstanceError):
        submitted.is_done = False  # type: ignore[misc]  # that is the point
