"""Tracer port: spans of requests and queries, linked to each other."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lookup_core.dimension.dimension_events import QueryOrder
from lookup_core.dimension.flight_table import BatchId
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.observer import QueryStatus

Outcomes = npt.NDArray[np.uint8]  # values of `Outcome`


class CallerSpan(Protocol):
    """One request or LOOKUP that is followed; ended once, by who began it."""

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """So became of some of its keys."""

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """It is over: with this HTTP status, if it has one; `is_left` if its caller had gone."""


class QuerySpan(Protocol):
    """One query to a backend that is followed; ended once, by who began it."""

    def link(self, askers: Iterable[CallerSpan]) -> None:
        """It serves these, too; harmless for those that it is known to serve."""

    def end(self, result: QueryStatus, code: ErrorCode | None) -> None:
        """It is over; with this code, if it failed."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request as its span shows it."""

    method: str
    route: str  # the pattern, never the path, which has a key
    dimension: str | None  # if there is one of this name


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """A query as its span shows it."""

    dimension: str
    keys: int
    tries: int = 1  # of these keys, this one included


class Tracer(Protocol):
    """Begins spans, or None for what is not followed; never raises, never blocks."""

    @property
    def is_on(self) -> bool:
        """Whether it may ever begin one; the same for the whole life."""

    def begin_request(
        self, request: TracedRequest, parent: TraceParent | None
    ) -> CallerSpan | None:
        """A request for rows came in."""

    def begin_lookup(
        self, dimension: str, *, keys: int, parent: TraceParent | None
    ) -> CallerSpan | None:
        """A LOOKUP of a stream came in."""

    def begin_query(self, query: TracedQuery, askers: Iterable[CallerSpan]) -> QuerySpan | None:
        """A query is sent for these askers, as far as they are followed, and maybe for others."""


class NullTracer:
    """Follows nothing; the default."""

    @property
    def is_on(self) -> bool:
        """Never."""
        return False

    def begin_request(self, request: TracedRequest, parent: TraceParent | None) -> None:
        """Not followed."""

    def begin_lookup(self, dimension: str, *, keys: int, parent: TraceParent | None) -> None:
        """Not followed."""

    def begin_query(self, query: TracedQuery, askers: Iterable[CallerSpan]) -> None:
        """Not followed."""


@dataclass(frozen=True, slots=True)
class QuerySpans:
    """Costs nothing where nothing is followed."""

    dimension: str
    tracer: Tracer
    askers: Callable[[BatchId], Iterable[CallerSpan]]  # who waits for a query at this moment

    @contextmanager
    def around(self, order: QueryOrder) -> Iterator[None]:
        """Follow the query in the block, which passes its error on.

        Linked are those who wait for it when it is sent, and who have joined them when it ends.
        """
        if not self.tracer.is_on:
            yield
            return
        query = TracedQuery(self.dimension, order.keys.num_rows, order.tries)
        span = self.tracer.begin_query(query, self.askers(order.id))
        result: QueryStatus = QueryStatus.CANCELLED
        code: ErrorCode | None = None
        try:
            yield
            result = QueryStatus.OK
        except BackendError as error:
            code = error.code
            result = QueryStatus.of_failure(code)
            raise
        finally:
            if span is not None:
                span.link(self.askers(order.id))
                span.end(result, code)
