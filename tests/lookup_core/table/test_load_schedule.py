"""When a whole table is loaded the next time."""

import pytest

from lookup_core.settings import ReloadSettings
from lookup_core.table.reload import next_load_at

NOON_S = 1_000 * 86_400.0 + 43_200.0


def test_nothing_is_loaded_by_itself() -> None:
    """Without a rule only changes, doubts and people ask for a load."""
    assert next_load_at(ReloadSettings(), now=5.0, wall_s=NOON_S) is None


def test_pause_counts_from_the_end() -> None:
    """However long a load takes, there is a pause between two."""
    assert next_load_at(ReloadSettings(every_s=60.0), now=5.0, wall_s=NOON_S) == 65.0


@pytest.mark.parametrize(
    ("at_s", "due_at"), [(46_800.0, 3_605.0), (39_600.0, 82_805.0), (43_200.0, 86_405.0)]
)
def test_time_of_day_is_the_next_one(at_s: float, due_at: float) -> None:
    """Later today, else tomorrow; a load that ends just then is not followed by another."""
    assert next_load_at(ReloadSettings(at_s=at_s), now=5.0, wall_s=NOON_S) == due_at
