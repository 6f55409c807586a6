"""The workload of the benchmark."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bench.workload import KEYS, Workload


def test_same_numbers_give_same_events(tmp_path: Path) -> None:
    """Two folders get the same keys, so that runs on different machines look up the same."""
    first, second = (Workload(tmp_path / name, 2_000, 100) for name in ("a", "b"))

    first.write()
    second.write()

    for keys in KEYS:
        assert pq.read_table(first.events_of(keys)) == pq.read_table(second.events_of(keys))


def test_zipf_keys_are_skewed(tmp_path: Path) -> None:
    """The most frequent Zipf key is far more frequent than the most frequent uniform one."""
    workload = Workload(tmp_path, 10_000, 1_000)

    workload.write()

    most = {
        keys: np.bincount(pq.read_table(workload.events_of(keys))["customer_id"]).max()
        for keys in KEYS
    }
    assert most["zipf"] > 20 * most["uniform"]


def test_keys_exist_in_the_dimension(tmp_path: Path) -> None:
    """Every event finds its customer: key n stands in row n."""
    workload = Workload(tmp_path, 1_000, 50)

    workload.write()

    assert pq.read_table(workload.dimension)["id"].to_pylist() == list(range(50))
    for keys in KEYS:
        found = pq.read_table(workload.events_of(keys))["customer_id"].to_numpy()
        assert found.min() >= 0
        assert found.max() < 50
