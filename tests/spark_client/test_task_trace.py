"""Which trace a task's lookups belong to: what was given, or what its job says."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lookup_core.protocol.trace_parent import TraceParent
from spark_client.lookup_task import task_trace, trace_parent

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def test_well_formed_texts_are_taken() -> None:
    """What is given by value is the trace."""
    assert trace_parent(TRACEPARENT) == TraceParent(TRACEPARENT)
    assert trace_parent(None) is None


@pytest.mark.parametrize("text", ["", "01", TRACEPARENT + "0"])
def test_other_texts_are_refused(text: str) -> None:
    """A mistake is told where it was made, and not ignored by every sidecar."""
    with pytest.raises(ValueError, match="traceparent is 00-"):
        trace_parent(text)


def test_given_trace_wins_outside_of_a_job() -> None:
    """On the driver there is no job to ask."""
    given = TraceParent(TRACEPARENT)

    assert (task_trace(given), task_trace(None)) == (given, None)


def test_job_tells_its_trace(spark_session: SparkSession) -> None:
    """The local property of the job is seen in its tasks, with the vendor's state."""

    def tell(_batches: object) -> object:
        told = task_trace(None)
        texts = [] if told is None else [told.traceparent, told.tracestate]
        yield pa.record_batch({"text": pa.array(texts, pa.utf8())})

    context = spark_session.sparkContext
    context.setLocalProperty("traceparent", TRACEPARENT)
    context.setLocalProperty("tracestate", "vendor=1")
    try:
        one = spark_session.range(1).coalesce(1)
        rows = one.mapInArrow(tell, "text string").collect()  # type: ignore[arg-type]
    finally:
        context.setLocalProperty("traceparent", None)  # type: ignore[arg-type]
        context.setLocalProperty("tracestate", None)  # type: ignore[arg-type]

    assert [row.text for row in rows] == [TRACEPARENT, "vendor=1"]
