"""Row table: the rows of a cache by slot, in segments, as its readers see them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.compatibility import concat_batches
from lookup_core.keys.key_index import Slots

Addresses = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.intp]
Tags = npt.NDArray[np.uint64]  # a number for each row of a segment


@dataclass(frozen=True, slots=True)
class Gathered:
    """Rows by segment; row i belongs to item `order[i]` of the request."""

    order: Positions
    rows: pa.RecordBatch
    tags: Tags  # one for each row, if requested
    is_whole: bool = False  # the rows are those of all items, in their order


_NO_TAGS = np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True)
class RowTable:
    """Rows by slot, to be read.

    Another process may change the addresses meanwhile: slots may lead to other rows, or nowhere.
    """

    schema: pa.Schema
    addresses: Addresses  # by slot
    starts: Addresses  # the address of the first row of each segment, ascending
    ends: Addresses  # that behind the last one
    segments: Sequence[pa.RecordBatch]  # each with some columns of the schema, in its order
    is_negative: Sequence[bool]  # for each segment
    selected: dict[tuple[int, tuple[str, ...]], pa.RecordBatch] = field(default_factory=dict)

    def of(self, slots: Slots) -> Addresses:
        """The addresses of these slots; for ABSENT that of any slot."""
        return self.addresses.take(slots, mode="clip")

    def gather(
        self,
        addresses: Addresses,
        names: Sequence[str],
        *,
        is_negative: bool | None = None,
        tags: Sequence[Tags] = (),
    ) -> Gathered:
        """The rows at these addresses, duplicates allowed, in these columns.

        `tags` are those of each segment. `is_negative`: from negative segments only, or from others
        only. Addresses without a row there are left out. Rows are copied, even a single one: a view
        would keep its segment in memory, unaccounted.
        """
        if len(self.starts) == 1 and len(addresses):
            whole = self._of_one_segment(addresses, names, is_negative=is_negative, tags=tags)
            if whole is not None:
                return whole
        orders: list[Positions] = []
        pieces: list[pa.RecordBatch] = []
        found_tags: list[Tags] = []
        for at, order in self._by_segment(addresses):
            if is_negative in {None, self.is_negative[at]}:
                rows = addresses.take(order) - self.starts[at]
                orders.append(order)
                pieces.append(self._selected(at, names).take(pa.array(rows)))
                found_tags.append(tags[at].take(rows) if tags else _NO_TAGS)
        if not pieces:
            nothing = pa.RecordBatch.from_pylist([], schema=self.schema).select(names)
            return Gathered(np.arange(0), nothing, _NO_TAGS)
        found = np.concatenate(found_tags)
        return Gathered(np.concatenate(orders), concat_batches(pieces), found)

    def _of_one_segment(
        self,
        addresses: Addresses,
        names: Sequence[str],
        *,
        is_negative: bool | None,
        tags: Sequence[Tags],
    ) -> Gathered | None:
        """The rows if all of them are in the only segment: the usual case of few rows."""
        rows = addresses - self.starts  # addresses before the segment become large numbers
        is_known = rows < self.ends - self.starts
        is_wanted = is_negative in {None, self.is_negative[0]}
        if not is_wanted or np.count_nonzero(is_known) < len(rows):
            return None
        found = self._selected(0, names).take(pa.array(rows))
        found_tags = tags[0].take(rows) if tags else _NO_TAGS
        return Gathered(np.arange(len(rows)), found, found_tags, is_whole=True)

    def _by_segment(self, addresses: Addresses) -> Iterator[tuple[int, Positions]]:
        """The number of each segment that has some of the addresses, and which ones it has."""
        if not len(self.starts):
            return
        numbers = self.starts.searchsorted(addresses, "right") - 1
        # Between segments, and behind the last one, addresses have no row.
        is_known = (numbers >= 0) & (addresses < self.ends.take(numbers, mode="clip"))
        known = np.flatnonzero(is_known)
        # Numbers of 16 bits are sorted by radix.
        of_known = numbers.take(known).astype(np.min_scalar_type(len(self.starts)))
        order = known.take(of_known.argsort(kind="stable"))
        ends = np.cumsum(np.bincount(of_known, minlength=len(self.starts))).tolist()
        for number, (start, end) in enumerate(pairwise([0, *ends])):
            if end > start:
                yield number, order[start:end]

    def _selected(self, at: int, names: Sequence[str]) -> pa.RecordBatch:
        known = (at, tuple(names))
        if known not in self.selected:
            self.selected[known] = self.segments[at].select(names)
        return self.selected[known]
