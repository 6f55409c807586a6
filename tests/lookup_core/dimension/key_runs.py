"""Flights and runs of integer keys, for tests of what queues and sends them.

Makes them outside a flight table: whoever tests the table asks it for them.
"""

import numpy as np
import pyarrow as pa

from lookup_core.dimension.batcher import KeyRun
from lookup_core.dimension.flight_table import Flight, LookupId


def run_of(*keys: int, lookup: int = 1) -> KeyRun:
    """Keys that one lookup waits for, each at the position of its place here."""
    flights = [Flight(key, [(LookupId(lookup), at)]) for at, key in enumerate(keys)]
    source = pa.record_batch({"id": pa.array(keys, pa.int64())})
    return KeyRun(flights, source, np.arange(len(keys), dtype=np.int32))


def keys_of(runs: list[KeyRun] | None) -> list[int] | None:
    """The keys of runs, in their order, as their sources have them."""
    if runs is None:
        return None
    found: list[int] = []
    for run in runs:
        keys = run.source.column(0).take(pa.array(run.rows)).to_pylist()
        assert keys == [flight.key_id for flight in run.flights]
        found.extend(keys)
    return found
