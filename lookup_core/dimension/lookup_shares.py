"""What each lookup gets of what came, or did not come, for keys that several wait for.

Makes the answers; whether they are delivered, and what ends with them, is the state's business.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lookup_core.answer import Answer
from lookup_core.dimension.flight_table import FlightTable, LookupId, Waiters
from lookup_core.dimension.known_answers import KnownAnswers
from lookup_core.dimension.landing import Landing
from lookup_core.dimension.query_table import Query
from lookup_core.dimension.waiting_lookups import WaitingLookup, WaitingLookups
from lookup_core.errors import ErrorCode

Share = tuple[LookupId, Answer]


@dataclass(frozen=True, slots=True)
class LookupShares:
    """The shares of one dimension's lookups; `now` is monotonic seconds."""

    flights: FlightTable
    waiting: WaitingLookups
    known: KnownAnswers

    def of_rows(self, landing: Landing, waiters: Waiters) -> list[Share]:
        """A query's rows, for those who wait for its keys."""
        shares = []
        for lookup_id, (positions, ordinals) in waiters.items():
            columns = self.waiting.get(lookup_id).columns
            answers = [*landing.answers(positions, ordinals, columns)]
            shares += [(lookup_id, each) for each in self.known.with_default(answers, columns)]
        return shares

    def of_failure(self, query: Query, code: ErrorCode, now: float) -> list[Share]:
        """A query's error, or old rows in its place."""
        shares = []
        for lookup_id, (positions, ordinals) in self.flights.waiters(query.flights).items():
            key_ids = self.flights.key_ids(query.flights[ordinals])
            columns = self.waiting.get(lookup_id).columns
            answers = self.known.failed(key_ids, positions, columns=columns, code=code, now=now)
            shares += [(lookup_id, answer) for answer in answers]
        return shares

    def of_expired(
        self, lookups: Sequence[WaitingLookup], code: ErrorCode, now: float
    ) -> Iterator[tuple[Share, bool]]:
        """What lookups get whose time is over, and whether it is their last share."""
        for lookup in lookups:
            positions, key_ids = self.flights.left_open(lookup.id, lookup.waiters)
            columns = lookup.columns
            answers = self.known.failed(key_ids, positions, columns=columns, code=code, now=now)
            *before, last = [(lookup.id, answer) for answer in answers]
            yield from ((share, False) for share in before)
            yield last, True
