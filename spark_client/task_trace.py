"""Which trace the lookups of a task belong to: what its job was given, if anything.

Makes no spans and needs no OpenTelemetry: the texts are the caller's, and are only passed on.
"""

from pyspark import TaskContext

from lookup_core.trace_parent import TraceParent


def trace_parent(traceparent: str | None) -> TraceParent | None:
    """What a caller wrote; raises ValueError for what is no `traceparent`."""
    if traceparent is None:
        return None
    trace = TraceParent(traceparent)
    if not trace.is_well_formed:
        raise ValueError(
            f"traceparent is 00-<32 hex digits>-<16 hex digits>-<2>, not {traceparent!r}"
        )
    return trace


def task_trace(given: TraceParent | None) -> TraceParent | None:
    """The trace that was given, or that of the job's local properties, where the task runs."""
    context = TaskContext.get()
    if given is not None or context is None:
        return given
    traceparent = context.getLocalProperty("traceparent")
    if traceparent is None:
        return None
    return TraceParent(traceparent, context.getLocalProperty("tracestate") or "")
