"""What a live run changes in the tables, and in which order: planned before it starts.

Touches no database; who carries it out notes when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from demo.dimension import AIRPORTS, PLANES

PLANES_OF_A_CHANGE = 3
FIRST_VERSION = 1_000_000  # as seats of a plane: no real one has so many
ABSENT, ARRIVED = 0, 1  # the versions of an airport, before and after it is inserted
MISSING_AIRPORTS = {  # flights go there, but the data package does not know them
    "BQN": ("Rafael Hernandez", 18.4949, -67.1294, 237, -4, "N", "America/Puerto_Rico"),
    "SJU": ("Luis Munoz Marin Intl", 18.4394, -66.0018, 9, -4, "N", "America/Puerto_Rico"),
    "PSE": ("Mercedita", 18.0083, -66.563, 29, -4, "N", "America/Puerto_Rico"),
    "STT": ("Cyril E King", 18.3373, -64.9734, 23, -4, "N", "America/St_Thomas"),
}


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """One transaction: rows of one table, all with the same new version."""

    dimension: str
    keys: tuple[str, ...]
    version: int  # greater than that of each earlier change of the same rows


def planned_changes(planes: Sequence[str], count: int) -> list[PlannedChange]:
    """So many updates of planes, in turn, and the airports' insertions, evenly between them."""
    changes = [
        PlannedChange(PLANES.name, _turn(planes, number), FIRST_VERSION + number)
        for number in range(count)
    ]
    step = count // (len(MISSING_AIRPORTS) + 1)
    for number, airport in enumerate(MISSING_AIRPORTS, start=1):
        changes.insert(number * (step + 1) - 1, PlannedChange(AIRPORTS.name, (airport,), ARRIVED))
    return changes


def _turn(planes: Sequence[str], number: int) -> tuple[str, ...]:
    start = number * PLANES_OF_A_CHANGE
    places = range(start, start + PLANES_OF_A_CHANGE)
    return tuple(planes[place % len(planes)] for place in places)
