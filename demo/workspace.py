"""The folders of one demonstration, below one root.

What may be kept between runs and what must be fresh is decided here, and nowhere else.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where the demonstration keeps its files; nothing outside `root` is written."""

    root: Path

    @property
    def postgres(self) -> Path:
        """PostgreSQL's own folder; kept, because it takes seconds to make."""
        return self.root / "postgres"

    @property
    def flights(self) -> Path:
        """The Parquet files that the stream reads."""
        return self.root / "flights"

    @property
    def checkpoint(self) -> Path:
        """What the streaming query knows about its progress."""
        return self.root / "checkpoint"

    @property
    def enriched(self) -> Path:
        """The Parquet files that the stream writes."""
        return self.root / "enriched"

    @property
    def changelog(self) -> Path:
        """What Kafka and Debezium keep."""
        return self.root / "changelog"

    @property
    def live_checkpoint(self) -> Path:
        """What the query of a live run knows about its progress."""
        return self.root / "live_checkpoint"

    @property
    def spark_log(self) -> Path:
        """What Spark says while it runs."""
        return self.root / "spark.log"

    def prepare(self) -> None:
        """Make the folders, without anything of an earlier run's streams and changes."""
        streams = (self.flights, self.checkpoint, self.enriched, self.live_checkpoint)
        for folder in (*streams, self.changelog):
            shutil.rmtree(folder, ignore_errors=True)
        self.flights.mkdir(parents=True)
