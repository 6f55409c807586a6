"""What the clients of the benchmarks ask for."""

from bench.lookup_load import Asking


def test_keys_of_a_batch_are_distinct() -> None:
    """A batch asks for so many different rows of the dimension."""
    asking = Asking("unix:///nowhere", "customers", rows=1_000, keys=1_000, seed=1)

    first, second = asking.batches(2)

    assert sorted(first.column(0).to_pylist()) == list(range(1_000))
    assert first != second
