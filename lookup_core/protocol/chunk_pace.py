"""How many records of a channel's lookups may be carried out in one go.

Learned from what the chunks before took: hits cost a fraction of a microsecond, misses several.
Reads no clock itself.
"""

CHUNK_S = 0.004  # for so long others wait for the loop, and not much longer
MOST_RECORDS = 20_000
# Fewer are hardly quicker: what a chunk costs beside its records would be all of it, and a pace
# that takes that for their cost would make the next one smaller still.
LEAST_RECORDS = 800

_CAUTIOUS_S = 5e-6  # for one record, while nothing is known
_GAIN = 0.5


class ChunkPace:
    """The seconds that one record takes: an exponentially weighted mean with bounded growth."""

    def __init__(self, record_s: float = _CAUTIOUS_S) -> None:
        self.record_s = record_s

    @property
    def records(self) -> int:
        """So many records take about `CHUNK_S`, within the bounds."""
        return max(LEAST_RECORDS, min(int(CHUNK_S / self.record_s), MOST_RECORDS))

    def on_chunk(self, records: int, seconds: float) -> None:
        """A chunk of so many records, not none, took so long.

        A small one says little about the others: what it costs is mostly what every chunk costs.
        """
        found_s = max(seconds / records, CHUNK_S / MOST_RECORDS)
        gain = _GAIN * min(1.0, records / self.records)
        if found_s > self.record_s:
            self.record_s += gain * (found_s - self.record_s)
        else:
            # However quick it was: a chunk is at most twice as large as the one before.
            self.record_s = max(found_s, self.record_s * (1 - gain))
