"""docs/reference/metrics.md: metrics by subject, with labels and a typical query."""

import re
from collections.abc import Iterable, Iterator, Mapping

from lookup_core.answer import Outcome
from lookup_core.sources.splits import SplitState
from lookup_core.statistics import (
    AuditResult,
    EvictionReason,
    InvalidationOrigin,
    LoadResult,
    UnusedMessage,
)
from service.engine.observer import QueryStatus
from service.observability import metrics
from service.observability.metrics import (
    ChannelState,
    CreditKind,
    Label,
    Metric,
    RenewalResult,
    SourceKind,
)
from tools.reference.markdown import WIDTH, alternatives, code, fenced, page, paragraph, written

ALL_METRICS = {each.name: each for each in vars(metrics).values() if isinstance(each, Metric)}
# {heading: how the names of its metrics begin, without `sidelook_`}; the longest beginning counts
SUBJECTS = {
    "Lookups": ("lookups", "lookup_seconds", "in_flight"),
    "Cache": ("cache", "fenced", "invalidations"),
    "Shared memory": ("cache_shared", "shared"),
    "Backend": (
        *("backend", "breaker", "coalesced", "concurrency", "connection", "dimension_available"),
        *("lookup_uses_index", "queries", "queued", "retries"),
    ),
    "Freshness": ("dimension_staleness", "dimension_watermark"),
    "Change feed": ("dimension_feed", "dimension_audited"),
    "Full tables": ("dimension_whole", "dimension_load", "dimension_split"),
    "Streams": ("channels", "credit", "backlog", "stream"),
    "Process": ("build", "event_loop", "listeners", "memory"),
    "TLS": ("tls",),
}
_VALUES: Mapping[tuple[Metric, Label], Iterable[object]] = {
    (metrics.LOOKUPS, Label.OUTCOME): [outcome.label for outcome in Outcome],
    (metrics.BACKEND_QUERIES, Label.RESULT): QueryStatus,
    (metrics.CACHE_EVICTIONS, Label.REASON): EvictionReason,
    (metrics.CREDIT_RECORDS, Label.KIND): CreditKind,
    (metrics.CHANNELS, Label.CHANNEL_STATE): ChannelState,
    (metrics.DIMENSION_AUDITED_KEYS, Label.RESULT): AuditResult,
    (metrics.DIMENSION_FEED_UNUSED_MESSAGES, Label.REASON): UnusedMessage,
    (metrics.DIMENSION_LOADS, Label.RESULT): LoadResult,
    (metrics.DIMENSION_SPLITS, Label.KIND): SplitState,
    (metrics.DIMENSION_SPLIT_FAILURES, Label.KIND): SourceKind,
    (metrics.INVALIDATIONS, Label.ORIGIN): InvalidationOrigin,
    (metrics.TLS_CERTIFICATE_RENEWALS, Label.RESULT): RenewalResult,
}


def metrics_page() -> str:
    """The text of the page."""
    parts = [written("metrics")]
    for subject in SUBJECTS:
        parts.append(f"## {subject}")
        for metric in ALL_METRICS.values():
            if subject_of(metric) == subject:
                parts += _metric_parts(metric)
    return page("Metrics", parts)


def subject_of(metric: Metric) -> str:
    """The heading of a metric; raises ValueError without one."""
    name = metric.name.removeprefix("sidelook_")
    starts = [
        (len(start), subject)
        for subject, all_starts in SUBJECTS.items()
        for start in all_starts
        if name.startswith(start)
    ]
    return max(starts)[1]


def _metric_parts(metric: Metric) -> Iterator[str]:
    yield f"### {metric.name}"
    labels = ", ".join(map(code, metric.labels))
    yield paragraph(f"{metric.type} · {f'labels {labels}' if labels else 'no labels'}")
    yield paragraph(metric.help)
    for label in metric.labels:
        if values := _VALUES.get((metric, label)):
            yield paragraph(f"{code(label)}: {alternatives(map(str, values))}.")
    yield fenced("promql", "\n".join(_broken(metric.query)))


def _broken(query: str) -> Iterator[str]:
    """The query in lines that fit; a line ends with the operator."""
    if len(query) <= WIDTH:
        yield query
    else:
        yield from re.split(r"(?<= /) ", query)
