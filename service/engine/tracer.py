"""Tracer port: spans of requests and queries, linked to each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lookup_core.errors import ErrorCode
from lookup_core.protocol.frames import TraceParent
from service.engine.observer import QueryStatus

Outcomes = npt.NDArray[np.uint8]  # values of `Outcome`


class CallerSpan(Protocol):
    """A traced request or LOOKUP; the code that began it ends it once."""

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """Count outcomes of its keys."""

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """End it, with its HTTP status if it has one; `is_left` if its caller had left."""


class QuerySpan(Protocol):
    """A traced query to a backend; the code that began it ends it once."""

    def link(self, callers: Iterable[CallerSpan]) -> None:
        """Link callers that the query serves; a no-op for linked ones."""

    def end(self, result: QueryStatus, code: ErrorCode | None) -> None:
        """End it, with this code if it failed."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """The attributes of a request's span."""

    method: str
    route: str  # the pattern: the path has a key
    dimension: str | None  # if it exists


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """The attributes of a query's span."""

    dimension: str
    keys: int
    tries: int = 1  # attempts for its keys, this one included


class Tracer(Protocol):
    """Begins spans, or returns None for what is not traced; never raises, never blocks."""

    @property
    def is_on(self) -> bool:
        """Whether it may begin spans; never changes."""

    def begin_request(
        self, request: TracedRequest, parent: TraceParent | None
    ) -> CallerSpan | None:
        """Begin the span of a request for rows."""

    def begin_lookup(
        self, dimension: str, *, keys: int, parent: TraceParent | None
    ) -> CallerSpan | None:
        """Begin the span of a stream's LOOKUP."""

    def begin_query(self, query: TracedQuery, callers: Iterable[CallerSpan]) -> QuerySpan | None:
        """Begin the span of a query, for these callers and maybe for others."""


class NullTracer:
    """Traces nothing; the default."""

    is_on = False

    def begin_request(self, request: TracedRequest, parent: TraceParent | None) -> None:
        """Trace nothing."""

    def begin_lookup(self, dimension: str, *, keys: int, parent: TraceParent | None) -> None:
        """Trace nothing."""

    def begin_query(self, query: TracedQuery, callers: Iterable[CallerSpan]) -> None:
        """Trace nothing."""
