"""The tracer of the tests tells what it was told, and complains of who ends a span twice."""

import numpy as np
import pytest

from lookup_core.answer import Outcome
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.fake_tracer import FakeTracer
from service.engine.observer import QueryStatus
from service.engine.tracer import TracedQuery

UNFOLLOWED = TraceParent(f"00-{'a' * 32}-{'b' * 16}-00")


def test_spans_are_kept_as_they_are_told() -> None:
    """Outcomes add up, and an asker is linked once."""
    tracer = FakeTracer()
    asker = tracer.begin_lookup("customers", keys=2, parent=None)
    assert asker is not None
    query = tracer.begin_query(TracedQuery("customers", 2), [asker])

    asker.count_outcomes(np.array([Outcome.HIT, Outcome.MISSING], np.uint8))
    query.link([asker])
    query.end(QueryStatus.OK, None)

    assert (asker.outcomes, query.askers) == ({"hit": 1, "missing": 1}, [asker])
    assert query.end_told == (QueryStatus.OK, None)


def test_unfollowed_traces_stay_so() -> None:
    """Who says that its trace is not followed gets no span."""
    tracer = FakeTracer()

    assert tracer.begin_lookup("customers", keys=1, parent=UNFOLLOWED) is None
    assert tracer.askers == []


def test_second_end_is_a_fault() -> None:
    """A span that would be told twice fails its test."""
    asker = FakeTracer().begin_lookup("customers", keys=1, parent=None)
    assert asker is not None
    asker.end()

    with pytest.raises(AssertionError):
        asker.end()
