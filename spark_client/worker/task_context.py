"""What Spark says of the task that runs here."""

from pyspark import TaskContext

from lookup_core.protocol.frames import TraceParent


def origin() -> str:
    """The task, for people; distinct for retried and speculative attempts."""
    context = TaskContext.get()
    if context is None:
        return "driver"
    return (
        f"stage {context.stageId()} partition {context.partitionId()}"
        f" attempt {context.attemptNumber()} task {context.taskAttemptId()}"
    )


def task_trace(given: TraceParent | None) -> TraceParent | None:
    """The given trace, or that of the job's local properties, where the task runs."""
    context = TaskContext.get()
    if given is not None or context is None:
        return given
    traceparent = context.getLocalProperty("traceparent")
    if traceparent is None:
        return None
    return TraceParent(traceparent, context.getLocalProperty("tracestate") or "")
