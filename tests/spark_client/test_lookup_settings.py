"""How one lookup join is to behave."""

import numpy as np
import pytest

from lookup_core.operator.event_time_watermarks import Cut
from lookup_core.operator.ordered_queue import OrderedQueue
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from spark_client.lookup_settings import LookupSettings, OutputMode, WatermarkSettings


def test_mode_decides_the_queue() -> None:
    """Each mode has its element queue, of the capacity given."""
    queues = [mode.new_queue(3) for mode in OutputMode]

    assert [type(queue) for queue in queues] == [OrderedQueue, UnorderedQueue, KeyOrderedQueue]
    assert [queue.free_places() for queue in queues] == [3, 3, 3]


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_bounds_must_be_positive(timeout_s: float) -> None:
    """No capacity and no time are mistakes."""
    with pytest.raises(ValueError, match="capacity"):
        LookupSettings(capacity=0)
    with pytest.raises(ValueError, match="timeout"):
        LookupSettings(timeout_s=timeout_s)


def test_watermarks_are_made_per_partition() -> None:
    """Each generator begins anew with the settings' delay and interval."""
    settings = WatermarkSettings(column=0, delay_ms=5, interval_ms=None)

    cuts = [settings.new_watermarks().on_batch(np.array([100], np.int64)) for _ in range(2)]

    assert cuts == [[Cut(1, 94)], [Cut(1, 94)]]
