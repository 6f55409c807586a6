"""Which rows beyond their time to live are served all the same, and until when.

Both windows follow RFC 5861: `stale-while-revalidate` answers at once and reads anew behind it,
`stale-if-error` answers where the store fails. Rows only: an old absence is never served, so that
an outage does not make a row missing that has come since.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lookup_core.answer import Answer
from lookup_core.cache.cached_answers import KeptRows, cached_rows
from lookup_core.cache.row_cache import Probe
from lookup_core.errors import ErrorCode
from lookup_core.settings import CacheSettings

Mask = npt.NDArray[np.bool_]


def all_stale(probe: Probe) -> Probe:
    """The same as if the time of all rows were over, and of all absences, too."""
    nothing = np.zeros_like(probe.is_row)
    is_stale = probe.is_stale | probe.is_row
    ttl_s = np.where(np.isinf(probe.ttl_s), 0.0, probe.ttl_s)  # rows that had no end
    return replace(probe, is_row=nothing, is_missing=nothing, is_stale=is_stale, ttl_s=ttl_s)


@dataclass(frozen=True, slots=True)
class StaleRows:
    """The rows of a cache that are beyond their time to live."""

    cache: KeptRows
    settings: CacheSettings

    def while_revalidating(self, probe: Probe) -> Mask:
        """Which keys are answered at once, and read anew."""
        return self._is_within(probe, self.settings.stale_while_revalidate_s)

    def if_error(self, probe: Probe) -> Mask:
        """Which keys have a row that may be served when the store fails."""
        return self._is_within(probe, self.settings.stale_if_error_s)

    def may_serve(self, code: ErrorCode) -> bool:
        """Whether rows may stand in for what failed so.

        Not where the table has changed its shape, or may not be read any more.
        """
        return self.settings.stale_if_error_s > 0 and code.is_retryable

    def instead_of_error(
        self,
        probe: Probe,
        *,
        positions: npt.NDArray[np.int32],
        columns: Sequence[str],
    ) -> Iterator[Answer]:
        """At most one answer: the rows that stand in for the probed keys of a lookup that failed.

        `positions[i]` of the lookup is key i.
        """
        # A row that has become fresh meanwhile, by another query, is as welcome.
        served = np.flatnonzero(self.if_error(probe) | probe.is_row)
        if served.size:
            yield cached_rows(self.cache, probe, served, positions=positions, columns=columns)

    @staticmethod
    def _is_within(probe: Probe, beyond_s: float) -> Mask:
        if not beyond_s:  # what is within its time may count as stale
            return np.zeros_like(probe.is_stale)
        return probe.is_stale & (probe.ages_s < probe.ttl_s + beyond_s)
