"""The end of the stream, with a frame that is none of Spark's."""

import time
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from demo.live.live_run import StreamObserver

WATCHED = frozenset({("planes", "N1")})


class FakeFrame:
    """One flight of N1, as a micro-batch would hand it out."""

    def select(self, *columns: str) -> "FakeFrame":
        """The same; the columns are all that it has."""
        assert set(columns) == {"tailnum", "plane_seats", "dest", "dest_name"}
        return self

    def toArrow(self) -> pa.Table:  # noqa: N802  # as Spark calls it
        """The flight."""
        row = {"tailnum": "N1", "plane_seats": 7, "dest": "IAH", "dest_name": "Houston"}
        return pa.Table.from_pylist([row])


FRAME = cast("DataFrame", FakeFrame())


class FailingFrame(FakeFrame):
    """A micro-batch that fails when its records are asked for."""

    def toArrow(self) -> pa.Table:  # noqa: N802  # as Spark calls it
        """Nothing."""
        raise ConnectionError


def test_batches_are_seen_when_they_came_out() -> None:
    """What a batch shows is noted, with the time at which its records were there."""
    observer = StreamObserver(WATCHED)
    started_s = time.time()

    observer.on_batch(FRAME, 0)

    [sighting] = observer.sightings
    assert started_s <= sighting.emitted_s <= time.time()
    assert (sighting.records, sighting.versions) == (1, {("planes", "N1"): {7: 1}})


def test_closed_observer_sees_nothing() -> None:
    """Batches that come after it was closed are not looked at."""
    observer = StreamObserver(WATCHED)
    observer.on_batch(FRAME, 0)

    observer.close()
    observer.on_batch(FRAME, 1)

    assert len(observer.sightings) == 1


def test_failed_batch_is_the_query_s_failure() -> None:
    """What fails is raised to Spark, and the observer can be closed all the same."""
    observer = StreamObserver(WATCHED)

    with pytest.raises(ConnectionError):
        observer.on_batch(cast("DataFrame", FailingFrame()), 0)
    observer.close()

    assert observer.sightings == []
