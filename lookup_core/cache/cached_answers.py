"""Answers from a cache probe: hits, stale rows and negative entries."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lookup_core.answer import MOST_AGE_MS, Answer, Outcome, rowless_answer
from lookup_core.cache.row_cache import Probe
from lookup_core.cache.row_store import Gathered
from lookup_core.keys.key_index import Slots


class KeptRows(Protocol):
    """Rows by slot."""

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order they are stored."""


def cached_answers(
    cache: KeptRows,
    probe: Probe,
    *,
    is_served_stale: npt.NDArray[np.bool_],
    positions: npt.NDArray[np.int32],
    columns: Sequence[str],
) -> Iterator[Answer]:
    """At most one answer for absences and one for rows; `positions[i]` of the lookup is key i."""
    if (missing := np.flatnonzero(probe.is_missing)).size:
        answer = rowless_answer(positions[missing], Outcome.MISSING)
        yield replace(answer, ages_ms=_ages_ms(probe, missing))
    if (found := np.flatnonzero(probe.is_row | is_served_stale)).size:
        yield cached_rows(cache, probe, found, positions=positions, columns=columns)


def cached_rows(
    cache: KeptRows,
    probe: Probe,
    found: npt.NDArray[np.intp],
    *,
    positions: npt.NDArray[np.int32],
    columns: Sequence[str],
) -> Answer:
    """The rows of those keys of the probe, fresh or stale."""
    gathered = cache.rows(probe.slots[found], columns)
    found = found[gathered.order]
    outcomes = np.where(probe.is_row[found], Outcome.HIT, Outcome.STALE).astype(np.uint8)
    return Answer(positions[found], outcomes, _ages_ms(probe, found), gathered.rows)


def _ages_ms(probe: Probe, found: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
    # Of these only: what stands beside a key that is not cached may be too large for the type.
    return np.minimum(probe.ages_s[found] * 1000, MOST_AGE_MS).astype(np.uint32)
