"""A part of a source that is read on its own: a partition, a range of keys, a row group.

Where it lies in its source is the source's own business, in classes of its own that extend this.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """One part; two of one source differ in their ids."""

    id: str
