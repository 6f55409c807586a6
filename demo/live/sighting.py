"""What one micro-batch of the enriched stream shows of the rows that change.

Counts versions and nothing else; what they should be is judged elsewhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from demo.dimension import AIRPORTS, PLANES
from demo.live.planned_change import PlannedChange

Key = tuple[str, str]  # a dimension and one of its keys
COLUMNS = ("tailnum", "plane_seats", "dest", "dest_name")


@dataclass(frozen=True, slots=True)
class Sighting:
    """The versions of the rows that are watched, in the records of one micro-batch."""

    emitted_s: float  # since the epoch; when all records had come out
    records: int
    versions: Mapping[Key, Mapping[int, int]]  # {which row: {version: records that show it}}


def watched_keys(changes: Iterable[PlannedChange]) -> frozenset[Key]:
    """The rows that are changed."""
    return frozenset((change.dimension, key) for change in changes for key in change.keys)


def sight(enriched: pa.Table, watched: frozenset[Key], *, emitted_s: float) -> Sighting:
    """What the records show of the rows."""
    seats = pc.fill_null(enriched["plane_seats"].cast(pa.int64()), 0)
    has_airport = pc.is_valid(enriched["dest_name"]).cast(pa.int64())
    versions: dict[Key, dict[int, int]] = {}
    for dimension, keys, shown in (
        (PLANES.name, enriched["tailnum"], seats),
        (AIRPORTS.name, enriched["dest"], has_airport),
    ):
        wanted = pa.array([key for name, key in watched if name == dimension], pa.string())
        records = pa.table({"key": keys, "version": shown}).filter(pc.is_in(keys, wanted))
        counted = records.group_by(["key", "version"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            versions.setdefault((dimension, row["key"]), {})[row["version"]] = row["count_all"]
    return Sighting(emitted_s, enriched.num_rows, versions)
