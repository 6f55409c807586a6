"""Which keys are asked for."""

import numpy as np

from bench.hit_rates import BATCH_KEYS, KeyTrace, key_traces


def test_trace_is_always_the_same() -> None:
    """The same numbers give the same keys, distinct in each batch."""
    trace = KeyTrace(1.0, distinct=5_000, batches=3)

    first, second = list(trace.keys()), list(trace.keys())

    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]
    assert all(len(np.unique(batch)) == len(batch) for batch in first)


def test_scans_ask_for_new_keys() -> None:
    """Every nth batch has keys that no other batch has."""
    batches = list(KeyTrace(1.0, distinct=5_000, batches=6, scan_every=3).keys())

    scanned = np.concatenate([batches[2], batches[5]])
    others = np.concatenate([batches[at] for at in (0, 1, 3, 4)])
    assert len(np.unique(scanned)) == 2 * BATCH_KEYS
    assert scanned.min() >= 5_000 > others.max()


def test_names_tell_traces_apart() -> None:
    """A table has one line for each."""
    names = [trace.name for trace in key_traces(100, 1)]

    assert len(set(names)) == len(names) == 9
