"""A `mapInArrow` function that lets some rows pass and holds up the rest until a file is there.

Stands before or behind a lookup join, so that a test can act while a task is at a known point.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tests.end_to_end.until import until


@dataclass(frozen=True, slots=True)
class BatchGate:
    """Shut after `rows` rows of each partition, until `open` is called in any process."""

    folder: Path
    rows: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, unchanged."""
        passed = 0
        for batch in batches:
            if passed >= self.rows:
                until((self.folder / "open").exists)
            passed += batch.num_rows
            yield batch

    def open(self) -> None:
        """Let everything pass from now on."""
        (self.folder / "open").touch()
