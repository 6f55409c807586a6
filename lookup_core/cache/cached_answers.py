"""What a probe of the cache found, as answers: absences, and rows in the order they are stored.

Does not probe: what counts as a visit is the state's decision.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lookup_core.answer import Answer, rowless_answer
from lookup_core.cache.row_cache import Probe, RowCache
from lookup_core.outcome import Outcome


def cached_answers(
    cache: RowCache,
    probe: Probe,
    *,
    positions: npt.NDArray[np.int32],
    columns: Sequence[str],
) -> Iterator[Answer]:
    """At most one answer for each kind; `positions[i]` of the lookup is key i of the probe."""
    if (missing := np.flatnonzero(probe.is_missing)).size:
        answer = rowless_answer(positions[missing], Outcome.MISSING)
        yield replace(answer, ages_ms=_ages_ms(probe, missing))
    if (hits := np.flatnonzero(probe.is_row)).size:
        found = cache.rows(probe.slots[hits], columns)
        hits = hits[found.order]
        outcomes = np.full(len(hits), Outcome.HIT, np.uint8)
        yield Answer(positions[hits], outcomes, _ages_ms(probe, hits), found.rows)


def _ages_ms(probe: Probe, found: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
    # Of these only: what stands beside a key that is not cached may be too large for the type.
    return (probe.ages_s[found] * 1000).astype(np.uint32)
