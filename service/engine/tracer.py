"""What the service tells about single requests and queries, for who follows one of them.

Totals are no business of it: see `observer`. Nothing told here is a key, a row or a parameter.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lookup_core.errors import ErrorCode
from lookup_core.trace_parent import TraceParent
from service.engine.observer import QueryResult

Outcomes = npt.NDArray[np.uint8]  # values of `Outcome`


class AskerSpan(Protocol):
    """One request or LOOKUP that is followed; ended once, by who began it."""

    def count_outcomes(self, outcomes: Outcomes) -> None:
        """So became of some of its keys."""

    def end(self, *, status: int | None = None, is_left: bool = False) -> None:
        """It is over: with this HTTP status, if it has one; `is_left` if its caller had gone."""


class QuerySpan(Protocol):
    """One query to a backend that is followed; ended once, by who began it."""

    def link(self, askers: Iterable[AskerSpan]) -> None:
        """It serves these, too; harmless for those that it is known to serve."""

    def end(self, result: QueryResult, code: ErrorCode | None) -> None:
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

    def begin_request(self, request: TracedRequest, parent: TraceParent | None) -> AskerSpan | None:
        """A request for rows came in."""

    def begin_lookup(
        self, dimension: str, *, keys: int, parent: TraceParent | None
    ) -> AskerSpan | None:
        """A LOOKUP of a stream came in."""

    def begin_query(self, query: TracedQuery, askers: Iterable[AskerSpan]) -> QuerySpan | None:
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

    def begin_query(self, query: TracedQuery, askers: Iterable[AskerSpan]) -> None:
        """Not followed."""
