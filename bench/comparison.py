"""Whether all contenders that add the columns add the same ones: a fast wrong answer is none.

Compares row for row, on a part of the events.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from bench.contenders import Contender

COMPARED_EVENTS = 20_000


def differences(events: DataFrame, contenders: Mapping[str, Contender]) -> list[str]:
    """The contenders whose rows are not those of the first one that adds columns."""
    some = events.filter(events["event"] < COMPARED_EVENTS)
    adding = {name: add(some) for name, add in contenders.items() if name != "identity"}
    reference, *others = adding.items()
    expected = reference[1].sort("event").collect()
    return [
        f"{name} does not give the rows of {reference[0]}"
        for name, frame in others
        if frame.sort("event").collect() != expected
    ]
