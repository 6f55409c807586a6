"""Which keys of a query that landed are asked again, because they had no row yet.

A row that comes later than its record is found that way. Not for failed queries, which are tried
again as a whole.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lookup_core.dimension.flight_table import LookupId, Waiters
from lookup_core.dimension.landing import NO_ROW, Landing
from lookup_core.dimension.retry_policy import NEVER


@dataclass(frozen=True, slots=True)
class Postponement:
    """Keys that wait for another try, and the lookups that wait with them.

    Those lookups get no answer for these keys now. All others that wait for such a key do: they
    would be gone before the next try, and the wait would only make a timeout of an absence.
    """

    lookups: AbstractSet[LookupId]
    is_postponed: npt.NDArray[np.bool_]  # [keys of the query]
    retry_at: float  # or NEVER

    @property
    def is_last_try(self) -> bool:
        """Whether a key without a row has none, as far as anybody waits to know."""
        return self.retry_at == NEVER

    @classmethod
    def of_missing(
        cls,
        landing: Landing,
        waiters: Waiters,
        *,
        patient: AbstractSet[LookupId],
        retry_at: float,
    ) -> "Postponement":
        """The keys without a row that a patient lookup waits for; none without such lookups."""
        is_wanted = np.zeros(len(landing.row_of), np.bool_)
        for lookup_id in patient:
            _, ordinals = waiters[lookup_id]
            is_wanted[ordinals] = True
        return cls(patient, is_wanted & (landing.row_of == NO_ROW), retry_at)

    def answered_now(self, waiters: Waiters) -> Waiters:
        """The same waiters without those who wait on."""
        answered = dict(waiters)
        for lookup_id in self.lookups:
            positions, ordinals = waiters[lookup_id]
            is_answered = ~self.is_postponed[ordinals]
            answered[lookup_id] = positions[is_answered], ordinals[is_answered]
        return answered
