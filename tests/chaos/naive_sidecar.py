"""Sidecars that are wrong on purpose: `python -m tests.chaos.naive_sidecar TWIN serve --config …`.

What the auditor of freshness must find; for nothing else.
"""

import sys

import numpy as np

from lookup_core.dimension.flight_table import FlightTable
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.freshness.change_fence import Mask, RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.canonical_keys import Hashes
from service.commands.application import run

UNFENCED = "unfenced"  # believes that a read which was sent after a change has seen it
NAIVE = "naive"  # keeps whatever it has read, whatever it was told meanwhile


def break_fences(twin: str) -> None:
    """Take the fence away, and the detached flights with it."""
    setattr(RecentChanges, "admits", _admit_all)  # noqa: B010  # mypy minds an assignment
    if twin == NAIVE:
        setattr(FlightTable, "detach", _detach_none)  # noqa: B010  # as above


def _admit_all(
    _: RecentChanges, hashes: Hashes, _snapshot: TableSnapshot | None, **_times: float
) -> Mask:
    return np.ones(len(hashes), np.bool_)


def _detach_none(_: FlightTable, _flights: Numbers) -> None:
    """Let them be joined and kept."""


if __name__ == "__main__":
    break_fences(sys.argv[1])
    sys.exit(run(sys.argv[2:]))
