"""Where the rows that a probe found are read from: a cache, or a table that is held whole.

Only what answering needs; how rows come in differs.
"""

from collections.abc import Sequence
from typing import Protocol

from lookup_core.cache.row_store import Gathered
from lookup_core.keys.key_index import Slots


class KeptRows(Protocol):
    """Rows by slot."""

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order they are stored."""
