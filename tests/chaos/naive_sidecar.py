"""Sidecars that are wrong on purpose: `python -m tests.chaos.naive_sidecar TWIN serve --config …`.

What the auditor of freshness must find; for nothing else.
"""

import sys

import numpy as np

from lookup_core.dimension.flight_table import FlightTable
from lookup_core.freshness.recent_changes import RecentChanges
from service.commands.application import run

UNFENCED = "unfenced"  # believes that a read which was sent after a change has seen it
NAIVE = "naive"  # keeps whatever it has read, whatever it was told meanwhile


def break_fences(twin: str) -> None:
    """Take the fence away, and the detached flights with it."""
    RecentChanges.admits = (  # type: ignore[method-assign]  # this is what is wrong with it
        lambda _self, hashes, *_, **__: np.ones(len(hashes), np.bool_)
    )
    if twin == NAIVE:
        FlightTable.detach = lambda _self, _flights: None  # type: ignore[method-assign]  # as above


if __name__ == "__main__":
    break_fences(sys.argv[1])
    sys.exit(run(sys.argv[2:]))
