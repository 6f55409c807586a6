"""What is given up at which share of memory."""

import pytest

from service.resources.memory_guard import MemoryPressure, PressureLevel


@pytest.mark.parametrize(
    ("used_share", "level"),
    [
        (0.0, PressureLevel.NONE),
        (0.849, PressureLevel.NONE),
        (0.85, PressureLevel.SHRINK_CACHES),
        (0.92, PressureLevel.STOP_CREDIT),
        (0.95, PressureLevel.REFUSE),
        (2.0, PressureLevel.REFUSE),
    ],
)
def test_levels_begin_at_their_shares(used_share: float, level: PressureLevel) -> None:
    """Caches give way first, then new credit, requests at last."""
    assert MemoryPressure().on_reading(used_share) is level


def test_levels_are_left_a_little_below() -> None:
    """At its threshold a level does not flutter."""
    pressure = MemoryPressure()
    shares = (0.95, 0.93, 0.919, 0.90, 0.889, 0.83, 0.81)

    seen = [pressure.on_reading(share) for share in shares]

    assert seen == [
        PressureLevel.REFUSE,
        PressureLevel.REFUSE,
        PressureLevel.STOP_CREDIT,
        PressureLevel.STOP_CREDIT,
        PressureLevel.SHRINK_CACHES,
        PressureLevel.SHRINK_CACHES,
        PressureLevel.NONE,
    ]


def test_caches_shrink_as_long_as_it_lasts() -> None:
    """Each look that finds too much takes a fifth, until nothing is left."""
    pressure = MemoryPressure()
    shares = []
    for _ in range(6):
        pressure.on_reading(0.9)
        shares.append(pressure.cache_share)

    assert shares == [0.8, 0.6, 0.4, 0.2, 0.0, 0.0]


def test_caches_grow_back_slowly() -> None:
    """Well below the threshold caches get a tenth back at each look; between, they stay."""
    pressure = MemoryPressure()
    pressure.on_reading(0.9)
    pressure.on_reading(0.8)
    assert pressure.cache_share == 0.8

    for _ in range(3):
        pressure.on_reading(0.74)

    assert pressure.cache_share == 1.0
