"""The flights that the stream reads."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from demo.flights import FILES, flights, write_flights


@pytest.fixture(scope="module")
def all_flights() -> pa.Table:
    """All of them, read once."""
    return flights()


def test_all_flights_are_there(all_flights: pa.Table) -> None:
    """Each of the 336,776 flights has its own number, counted from 0."""
    assert all_flights["flight_id"].to_pylist() == list(range(336_776))


def test_flights_stand_in_event_order(all_flights: pa.Table) -> None:
    """No flight departs before the one that stands in front of it."""
    event_time = all_flights["event_time"].combine_chunks().cast(pa.int64())

    assert pc.min(pc.pairwise_diff(event_time)).as_py() >= 0


def test_unknown_tail_number_is_null(all_flights: pa.Table) -> None:
    """What the file spells NA is NULL, so that it is never looked up."""
    assert all_flights["tailnum"].null_count == 2_512
    assert not pc.any(pc.equal(all_flights["tailnum"], pa.scalar("NA"))).as_py()


def test_files_continue_each_other(tmp_path: Path) -> None:
    """The files, oldest first, hold the flights in order; that is how the stream takes them."""
    written = write_flights(tmp_path, limit=1_000)

    paths = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert len({path.stat().st_mtime for path in paths}) == FILES
    assert pa.concat_tables(map(pq.read_table, paths)).equals(written)
    assert written.num_rows == 1_000
