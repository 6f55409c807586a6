"""Sidecars with a deliberate fault that the freshness audit must find.

`python -m tools.freshness.naive_sidecar TWIN serve --config …`
"""

import sys

import numpy as np

from lookup_core.dimension.flights import Flights
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.freshness.change_fence import Mask, RecentChanges
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.canonical_keys import Hashes
from service.commands.application import run

UNFENCED = "unfenced"  # assumes that a read after a change event has seen the change
NAIVE = "naive"  # caches every read, even of keys invalidated in between


def break_fences(twin: str) -> None:
    """Disable the fence, and for NAIVE the detaching of flights."""
    setattr(RecentChanges, "admits", _admit_all)  # noqa: B010  # mypy rejects an assignment
    if twin == NAIVE:
        setattr(Flights, "detach", _detach_none)  # noqa: B010  # as above


def _admit_all(
    _: RecentChanges, hashes: Hashes, _snapshot: TableSnapshot | None, **_times: float
) -> Mask:
    return np.ones(len(hashes), np.bool_)


def _detach_none(_: Flights, _flights: Numbers) -> None:
    """Keep the flights."""


if __name__ == "__main__":
    break_fences(sys.argv[1])
    sys.exit(run(sys.argv[2:]))
