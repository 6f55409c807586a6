"""When a whole table is loaded anew."""

import pytest

from lookup_core.settings import ReloadSettings
from service.config.refresh import Reload
from tests.service.config.configuration import dimension_faults


def test_pause_and_time_of_day_become_seconds() -> None:
    """Times of day count from midnight in UTC."""
    reloads = [Reload.model_validate(each) for each in ({"every": "10m"}, {"at": "03:30"})]

    assert [reload.engine_settings() for reload in reloads] == [
        ReloadSettings(every_s=600.0),
        ReloadSettings(at_s=12_600.0),
    ]


@pytest.mark.parametrize("both", [{"every": "1h", "at": "03:30"}, {}])
def test_exactly_one_of_both_is_given(both: dict[str, str]) -> None:
    """Neither both nor none."""
    faults = dimension_faults(cache={"mode": "full"}, refresh={"reload": both})

    assert faults == ["refresh.reload.at: give exactly one of reload.every and reload.at"]


@pytest.mark.parametrize("time", ["24:00", "3:30", "03:60", "noon", "03:30:00"])
def test_other_times_are_refused(time: str) -> None:
    """Hours and minutes have two digits each."""
    [fault] = dimension_faults(cache={"mode": "full"}, refresh={"reload": {"at": time}})

    assert fault.startswith("refresh.reload.at: must be a time of day in UTC")


def test_pause_needs_a_unit() -> None:
    """A bare number says no unit, so that it is refused."""
    faults = dimension_faults(cache={"mode": "full"}, refresh={"reload": {"every": 5}})

    assert faults[0].startswith("refresh.reload.every: 5 is not a duration")
