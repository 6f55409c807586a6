"""The spans of one dimension's queries, each linked to those whom it serves.

Whether anything is followed at all is the tracer's to say; who waits for a query, its owner's.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lookup_core.dimension.dimension_events import QueryOrder
from lookup_core.dimension.flight_table import BatchId
from lookup_core.errors import BackendError, ErrorCode
from service.engine.observer import QueryResult
from service.engine.tracer import AskerSpan, TracedQuery, Tracer


@dataclass(frozen=True, slots=True)
class QuerySpans:
    """Costs nothing where nothing is followed."""

    dimension: str
    tracer: Tracer
    askers: Callable[[BatchId], Iterable[AskerSpan]]  # who waits for a query at this moment

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
        result: QueryResult = QueryResult.CANCELLED
        code: ErrorCode | None = None
        try:
            yield
            result = QueryResult.OK
        except BackendError as error:
            code = error.code
            result = QueryResult.of_failure(code)
            raise
        finally:
            if span is not None:
                span.link(self.askers(order.id))
                span.end(result, code)
