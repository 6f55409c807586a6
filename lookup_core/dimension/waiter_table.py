"""Who waits for which key: lookups, and their positions, in columns.

A waiter has a number from when it begins to wait. Which waiters a flight has is noted by
`flight_table`, which also frees their numbers.
"""

import numpy as np
import numpy.typing as npt

from lookup_core.dimension.numbered_rows import NumberedRows, Numbers

Positions = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

NOBODY = -(2**63)  # no lookup's id
_WAITER: dict[str, npt.DTypeLike] = {
    "lookup_id": np.int64,  # nobody's once it was answered, or has left
    "position": np.int32,
    "flight": np.intp,
}


class WaiterTable:
    """Waiters by number; lookups' ids are plain numbers here, each used once."""

    def __init__(self) -> None:
        self._rows = NumberedRows(_WAITER)

    def __len__(self) -> int:
        """How many are not freed yet."""
        return len(self._rows)

    def add(self, lookup_id: int, flights: Numbers, positions: Positions) -> Numbers:
        """A lookup's positions wait for flights; their numbers."""
        waiters = self._rows.take(len(flights))
        self._rows["lookup_id"][waiters] = lookup_id
        self._rows["position"][waiters] = positions
        self._rows["flight"][waiters] = flights
        return waiters

    def lookup_ids(self, waiters: Numbers) -> npt.NDArray[np.int64]:
        """Whose they are, or nobody's."""
        return self._rows["lookup_id"][waiters]

    def positions(self, waiters: Numbers) -> Positions:
        """Where in their lookups they wait."""
        return self._rows["position"][waiters]

    def flights(self, waiters: Numbers) -> Numbers:
        """What they wait for."""
        return self._rows["flight"][waiters]

    def by_lookup(
        self, waiters: Numbers, ordinals: Positions
    ) -> dict[int, tuple[Positions, Positions]]:
        """The positions of open waiters by lookup, each with one of the ordinals."""
        lookup_ids = self.lookup_ids(waiters)
        order = np.argsort(lookup_ids, kind="stable")
        lookup_ids, ordinals = lookup_ids[order], ordinals[order]
        positions = self.positions(waiters[order])
        ends = (np.flatnonzero(np.diff(lookup_ids, append=NOBODY)) + 1).tolist()
        return {
            int(lookup_ids[start]): (positions[start:end], ordinals[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        }

    def is_open(self, waiters: Numbers) -> Mask:
        """Who of them still waits."""
        return self.lookup_ids(waiters) != NOBODY

    def close(self, waiters: Numbers) -> None:
        """Let them wait no longer; their numbers are theirs until they are freed."""
        self._rows["lookup_id"][waiters] = NOBODY

    def free(self, waiters: Numbers) -> None:
        """Let their numbers be others'."""
        self.close(waiters)
        self._rows.give_back(waiters)
