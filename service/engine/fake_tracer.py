"""A tracer that keeps its spans as plain values, for tests of whoever is traced.

Follows everything whose parent does not say otherwise; no part of a running service.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, Outcomes, TracedQuery, TracedRequest


@dataclass(slots=True, eq=False)
class FakeCallerSpan:
    """A request or LOOKUP, and what became of it."""

    what: TracedRequest | tuple[str, int]  # a LOOKUP by its dimension and number of keys
    parent: TraceParent | None
    outcomes: Counter[str] = field(default_factory=Counter)  # {label: keys}
    status: int | None = None
    is_left: bool = False
    has_ended: bool = False

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """Note them."""
        self.outcomes.update(Outcome(each).label for each in outcomes.tolist())

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """Note it; a second end is a fault of the caller."""
        assert not self.has_ended, "a span ends once"
        self.status, self.is_left, self.has_ended = status, is_left, True


@dataclass(slots=True, eq=False)
class FakeQuerySpan:
    """A query, whom it served, and how it ended."""

    what: TracedQuery
    askers: list[CallerSpan]  # each once, in the order in which they were linked
    end_told: tuple[QueryStatus, ErrorCode | None] | None = None

    def link(self, askers: Iterable[CallerSpan]) -> None:
        """Note those that are new."""
        self.askers += [each for each in dict.fromkeys(askers) if each not in self.askers]

    def end(self, result: QueryStatus, code: ErrorCode | None) -> None:
        """Note it; a second end is a fault of the caller."""
        assert self.end_told is None, "a span ends once"
        self.end_told = (result, code)


class FakeTracer:
    """Keeps spans in the order in which they began."""

    def __init__(self) -> None:
        self.askers: list[FakeCallerSpan] = []
        self.queries: list[FakeQuerySpan] = []

    @property
    def is_on(self) -> bool:
        """Always."""
        return True

    def begin_request(
        self, request: TracedRequest, parent: TraceParent | None
    ) -> FakeCallerSpan | None:
        """A span, unless the caller's own trace is not followed."""
        return self._begun(request, parent)

    def begin_lookup(
        self, dimension: str, *, keys: int, parent: TraceParent | None
    ) -> FakeCallerSpan | None:
        """As for a request."""
        return self._begun((dimension, keys), parent)

    def begin_query(self, query: TracedQuery, askers: Iterable[CallerSpan]) -> FakeQuerySpan:
        """A span for every query."""
        span = FakeQuerySpan(query, [])
        span.link(askers)
        self.queries.append(span)
        return span

    def _begun(
        self, what: TracedRequest | tuple[str, int], parent: TraceParent | None
    ) -> FakeCallerSpan | None:
        if parent is not None and parent.is_well_formed and parent.traceparent.endswith("-00"):
            return None
        self.askers.append(FakeCallerSpan(what, parent))
        return self.askers[-1]
