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


def test_first_events_are_the_same_ones(tmp_path: Path) -> None:
    """Fewer events are the first of all, in a row group for each core."""
    workload = Workload(tmp_path, 1_000, 50)
    workload.write()

    some = pq.ParquetFile(workload.first_events_of("zipf", 101))

    assert some.read() == pq.read_table(workload.events_of("zipf")).slice(0, 101)
    assert some.num_row_groups == 2


def test_distinct_events_ask_for_each_row_once(tmp_path: Path) -> None:
    """Each key comes once, in another order than the table's."""
    found = pq.read_table(Workload(tmp_path, 1_000, 50).distinct_events())[
        "customer_id"
    ].to_pylist()

    assert sorted(found) == list(range(50))
    assert found != list(range(50))
