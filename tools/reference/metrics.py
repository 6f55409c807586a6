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
# Forms of queries, by type and for single metrics.
_RATE = "sum by ({labels}) (rate({name}[5m]))"
_SUM = "sum by ({labels}) ({name})"
_P99 = "histogram_quantile(0.99, sum by ({labels}, le) (rate({name}_bucket[5m])))"
_OF_TYPES = {"counter": _RATE, "gauge": _SUM, "histogram": _P99}
_QUERIES: Mapping[str, tuple[Metric, ...]] = {
    "sum by ({labels}) (rate({name}_sum[5m])) / sum by ({labels}) (rate({name}_count[5m]))": (
        metrics.BACKEND_BATCH_KEYS,
    ),
    "sum by ({labels}) (increase({name}[1h]))": (
        metrics.DIMENSION_AUDITED_KEYS,
        metrics.DIMENSION_FEED_UNUSED_MESSAGES,
        metrics.DIMENSION_SPLIT_FAILURES,
    ),
    "sum by ({labels}) (increase({name}[1d]))": (
        metrics.DIMENSION_LOADS,
        metrics.TLS_CERTIFICATE_RENEWALS,
    ),
    f"{_SUM} / sum by ({{labels}}) (sidelook_cache_rows)": (metrics.CACHE_BYTES,),
    f"{_RATE} / {_RATE.replace('{name}', metrics.LOOKUPS.name)}": (metrics.SHARED_LOOKUPS,),
    "sidelook_cache_bytes / {name}": (metrics.CACHE_MAX_BYTES,),
    "sidelook_dimension_staleness_seconds > {name}": (metrics.DIMENSION_STALENESS_LIMIT_SECONDS,),
    "{name} / sidelook_concurrency_limit": (metrics.QUERIES_IN_FLIGHT,),
    "{name} == 0": (metrics.CACHE_IS_SHARED,),
    "time() - min by ({labels}) ({name})": (
        metrics.STREAM_WATERMARK_SECONDS,
        metrics.DIMENSION_WATERMARK_SECONDS,
    ),
    "min by ({labels}) ({name}) == 0": (
        metrics.DIMENSION_AVAILABLE,
        metrics.DIMENSION_FEED_LIVE,
        metrics.DIMENSION_WHOLE,
        metrics.LOOKUP_USES_INDEX,
    ),
    "min by ({labels}) ({name})": (metrics.CONCURRENCY_LIMIT,),
    "max by ({labels}) ({name})": (
        metrics.DIMENSION_STALENESS_SECONDS,
        metrics.DIMENSION_FEED_BACKLOG,
        metrics.DIMENSION_LOAD_ROWS,
        metrics.DIMENSION_LOAD_SECONDS,
    ),
    "max by ({labels}) ({name}) == 1": (metrics.DIMENSION_FEED_INCOMPLETE,),
    "max by ({labels}) ({name}) > 0": (metrics.BREAKER_STATE,),
    "max({name})": (metrics.MEMORY_RESIDENT_BYTES, metrics.MEMORY_USED_RATIO),
    "count({name} > 0)": (metrics.MEMORY_PRESSURE_LEVEL,),
    "count({name} == 0)": (metrics.LISTENERS_REACHABLE,),
    "quantile(0.9, {name})": (metrics.EVENT_LOOP_LAG_SECONDS,),
    "(min({name}) - time()) / 86400": (metrics.TLS_CERTIFICATE_EXPIRY_SECONDS,),
    "count by ({labels}) ({name})": (metrics.BUILD_INFO,),
}
_FORMS = {metric: form for form, of_form in _QUERIES.items() for metric in of_form}
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


def query_of(metric: Metric) -> str:
    """A typical query."""
    form = _FORMS.get(metric, _OF_TYPES[metric.type])
    return form.format(name=metric.name, labels=", ".join(metric.labels))


def _metric_parts(metric: Metric) -> Iterator[str]:
    yield f"### {metric.name}"
    labels = ", ".join(map(code, metric.labels))
    yield paragraph(f"{metric.type} · {f'labels {labels}' if labels else 'no labels'}")
    yield paragraph(metric.help)
    for label in metric.labels:
        if values := _VALUES.get((metric, label)):
            yield paragraph(f"{code(label)}: {alternatives(map(str, values))}.")
    yield fenced("promql", "\n".join(_broken(query_of(metric))))


def _broken(query: str) -> Iterator[str]:
    """The query in lines that fit; a line ends with the operator."""
    if len(query) <= WIDTH:
        yield query
    else:
        yield from re.split(r"(?<= /) ", query)
