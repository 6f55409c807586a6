"""What grows, and by how much."""

from bench.growth_cases import CHANNELS, LEAST_BATCHES, LoadCase, cached_rows, small_growths

KEYS = 3_200_000


def _keys(case: LoadCase) -> int:
    return sum(load.batches * each.keys for load in case.loads for each in load.channels)


def test_cases_ask_for_the_same_number() -> None:
    """Within a kind of growth all cases look up the same; only small batches do with less."""
    asked = {
        growth.name: {_keys(case) for case in growth.cases}
        for growth in [
            *small_growths("unix:///s", KEYS),
            cached_rows("unix:///s", KEYS, largest=10),
        ]
    }

    assert asked.pop("batches") == {300_000, 3_000_000, KEYS}
    assert asked == {"channels": {KEYS}, "dimensions": {KEYS}, "columns": {KEYS}, "rows": set()}


def test_channels_outlast_their_start() -> None:
    """However few keys are asked for, each channel has so many that its start is a small part."""
    channels = small_growths("unix:///s", 5_000)[0]

    batches = {load.batches for case in channels.cases for load in case.loads}
    assert batches == {LEAST_BATCHES, 8 * LEAST_BATCHES, 64 * LEAST_BATCHES}
    assert len({_keys(case) for case in channels.cases}) == 1


def test_channels_are_spread_in_both_ways() -> None:
    """As many channels are asked on by as many processes, and by one."""
    channels = small_growths("unix:///s", KEYS)[0]

    spread = [(len(case.loads), len(case.loads[0].channels)) for case in channels.cases]
    assert spread == [pair for count in CHANNELS for pair in ((count, 1), (1, count))]


def test_rows_grow_up_to_the_largest() -> None:
    """A quick run leaves out what would take minutes to fill."""
    growth = cached_rows("unix:///s", KEYS, largest=1_000_000)

    assert [case.x for case in growth.cases] == [10_000, 100_000, 1_000_000]
