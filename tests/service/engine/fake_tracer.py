"""Fake tracer: keeps spans as values, for tests.

Traces all requests, unless their parent is not sampled.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from lookup_core.protocol.frames import TraceParent
from service.engine.observer import QueryStatus
from service.engine.tracer import CallerSpan, Outcomes, TracedQuery, TracedRequest


@dataclass(slots=True, eq=False)
class FakeCallerSpan:
    """The span of a request or LOOKUP."""

    what: TracedRequest | tuple[str, int]  # a LOOKUP by its dimension and number of keys
    parent: TraceParent | None
    outcomes: Counter[str] = field(default_factory=Counter)  # {label: keys}
    status: int | None = None
    is_left: bool = False
    has_ended: bool = False

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """Count the outcomes."""
        self.outcomes.update(Outcome(each).label for each in outcomes.tolist())

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """Record the end; a second one is a defect."""
        assert not self.has_ended, "a span ends once"
        self.status, self.is_left, self.has_ended = status, is_left, True


@dataclass(slots=True, eq=False)
class FakeQuerySpan:
    """The span of a query, its callers and its result."""

    what: TracedQuery
    callers: list[CallerSpan]  # each once, in the order of their links
    ended_with: tuple[QueryStatus, ErrorCode | None] | None = None

    def link(self, callers: Iterable[CallerSpan]) -> None:
        """Add new callers."""
        self.callers += [each for each in dict.fromkeys(callers) if each not in self.callers]

    def end(self, result: QueryStatus, code: ErrorCode | None) -> None:
        """Record the end; a second one is a defect."""
        assert self.ended_with is None, "a span ends once"
        self.ended_with = (result, code)


class FakeTracer:
    """Keeps spans in the order of their start."""

    is_on = True

    def __init__(self) -> None:
        self.callers: list[FakeCallerSpan] = []
        self.queries: list[FakeQuerySpan] = []

    def begin_request(
        self, request: TracedRequest, parent: TraceParent | None
    ) -> FakeCallerSpan | None:
        """A span, unless the parent is not sampled."""
        return self._begun(request, parent)

    def begin_lookup(
        self, dimension: str, *, keys: int, parent: TraceParent | None
    ) -> FakeCallerSpan | None:
        """The same for a LOOKUP."""
        return self._begun((dimension, keys), parent)

    def begin_query(self, query: TracedQuery, callers: Iterable[CallerSpan]) -> FakeQuerySpan:
        """A span for every query."""
        span = FakeQuerySpan(query, [])
        span.link(callers)
        self.queries.append(span)
        return span

    def _begun(
        self, what: TracedRequest | tuple[str, int], parent: TraceParent | None
    ) -> FakeCallerSpan | None:
        if parent is not None and parent.is_well_formed and parent.traceparent.endswith("-00"):
            return None
        self.callers.append(FakeCallerSpan(what, parent))
        return self.callers[-1]
