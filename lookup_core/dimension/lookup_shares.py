"""What each lookup gets of what came, or did not come, for keys that several wait for.

Makes the answers; whether they are delivered, and what ends with them, is the state's business.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from lookup_core.answer import Answer
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.known_answers import KnownAnswers
from lookup_core.dimension.landing import Landing, Waiters, waiters_by_lookup
from lookup_core.dimension.query_table import Query
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.errors import ErrorCode

Share = tuple[LookupId, Answer]


def shares_of_rows(
    landing: Landing, waiters: Waiters, *, waiting: WaitingLookups, known: KnownAnswers
) -> list[Share]:
    """A query's rows, for those who wait for its keys."""
    shares = []
    for lookup_id, (positions, ordinals) in waiters.items():
        columns = waiting.get(lookup_id).columns
        answers = [*landing.answers(positions, ordinals, columns)]
        shares += [(lookup_id, each) for each in known.with_default(answers, columns)]
    return shares


def shares_of_failure(
    query: Query, code: ErrorCode, *, waiting: WaitingLookups, known: KnownAnswers, now: float
) -> list[Share]:
    """A query's error, or old rows in its place."""
    shares = []
    for lookup_id, (positions, ordinals) in waiters_by_lookup(query.flights).items():
        key_ids = [query.flights[ordinal].key_id for ordinal in ordinals.tolist()]
        columns = waiting.get(lookup_id).columns
        answers = known.failed(key_ids, positions, columns=columns, code=code, now=now)
        shares += [(lookup_id, answer) for answer in answers]
    return shares


def shares_of_expired(
    lookups: Sequence[WaitingLookup], code: ErrorCode, *, known: KnownAnswers, now: float
) -> Iterator[tuple[Share, bool]]:
    """What lookups get whose time is over, and whether it is their last share."""
    for lookup in lookups:
        positions = np.array(list(lookup.flights), np.int32)
        key_ids = [flight.key_id for flight in lookup.flights.values()]
        answers = known.failed(key_ids, positions, columns=lookup.columns, code=code, now=now)
        *before, last = [(lookup.id, answer) for answer in answers]
        yield from ((share, False) for share in before)
        yield last, True
