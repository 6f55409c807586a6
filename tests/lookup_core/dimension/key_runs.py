"""Runs of integer keys, for tests of what queues and sends them."""

import numpy as np
import pyarrow as pa

from lookup_core.dimension.batcher import KeyRun
from lookup_core.dimension.flight_table import FlightTable, LookupId
from lookup_core.dimension.numbered_rows import Numbers
from lookup_core.keys.canonical_keys import keys_of_ids

LATE_S = 1e9


def run_of(table: FlightTable, *keys: int, lookup: int = 1) -> KeyRun:
    """New keys that one lookup waits for, each at the position of its place here."""
    return joined_run(table, *keys, lookup=lookup)[0]


def joined_run(table: FlightTable, *keys: int, lookup: int = 1) -> tuple[KeyRun, Numbers]:
    """The same, and the lookup's waiters."""
    rows = np.arange(len(keys), dtype=np.int32)
    joined = table.join(LookupId(lookup), keys_of_ids(keys), positions=rows, deadline_s=LATE_S)
    assert len(joined.started) == len(keys)
    source = pa.record_batch({"id": pa.array(keys, pa.int64())})
    return KeyRun(joined.started, source, rows), joined.waiters


def keys_of(table: FlightTable, runs: list[KeyRun] | None) -> list[int] | None:
    """The keys of runs, in their order, as their sources have them."""
    if runs is None:
        return None
    found: list[int] = []
    for run in runs:
        keys = run.source.column(0).take(pa.array(run.rows)).to_pylist()
        assert keys == table.key_ids(run.flights)
        found.extend(keys)
    return found
