"""Takes the enriched records out of Spark, batch by batch, and notes what they show and when.

Does not judge; and what has been noted is never changed.
"""

import threading
import time

from pyspark.sql import DataFrame

from demo.live.sighting import COLUMNS, Key, Sighting, sight


class StreamObserver:
    """The end of the stream; Spark calls it in a thread of its own, everybody else reads."""

    def __init__(self, watched: frozenset[Key]) -> None:
        self._watched = watched
        self._sightings: list[Sighting] = []
        self._between_batches = threading.Lock()
        self._is_closed = False

    @property
    def sightings(self) -> list[Sighting]:
        """What was seen so far, in this order."""
        return list(self._sightings)

    def on_batch(self, frame: DataFrame, _number: int) -> None:
        """Take the records of a micro-batch; nothing once it is closed."""
        with self._between_batches:
            if self._is_closed:
                return
            enriched = frame.select(*COLUMNS).toArrow()
            self._sightings.append(sight(enriched, self._watched, emitted_s=time.time()))

    def close(self) -> None:
        """Wait until no batch is under way; the query can be stopped then without a failure."""
        with self._between_batches:
            self._is_closed = True
