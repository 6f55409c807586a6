"""The lower part of the dashboard: freshness, streams, caches and the process itself.

Panels only; selectors stand in `selectors`.
"""

from tests.monitoring.dashboard.panel import HALF, QUARTER, Look, Panel, Query, Row
from tests.monitoring.dashboard.selectors import (
    DIMENSION,
    largest,
    of_dimensions,
    of_processes,
    rate,
    total,
)


def _worst(metric: str, legend: str = "{{dimension}}") -> Query:
    return Query(largest(of_dimensions(metric), DIMENSION), legend)


def _sum(metric: str, legend: str = "{{dimension}}") -> Query:
    return Query(total(of_dimensions(metric), DIMENSION), legend)


def _by_pod(metric: str) -> Query:
    by = "pod", "instance"
    return Query(largest(of_processes(metric), *by), "{{pod}} {{instance}}")


FRESHNESS = Row(
    "Freshness",
    (
        Panel(
            "Staleness",
            "How far rows may lag the table at most, in the worst sidecar, and the configured "
            "limit. Alert at twice the limit.",
            "s",
            (
                _worst("sidelook_dimension_staleness_seconds"),
                _worst("sidelook_dimension_staleness_limit_seconds", "{{dimension}} limit"),
            ),
        ),
        Panel(
            "Feeds that are not believed",
            "Sidecars whose feed of changes is silent or behind: they pass their cache by.",
            "none",
            (
                Query(
                    total(f"{of_dimensions('sidelook_dimension_feed_live')} == bool 0", DIMENSION),
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Time of the feed",
            "How long ago the changes happened that are surely known, in the worst sidecar.",
            "s",
            (
                Query(
                    largest(
                        f"time() - {of_dimensions('sidelook_dimension_watermark_seconds')}",
                        DIMENSION,
                    ),
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Changes not taken yet",
            "What the feed's source has and the sidecars have not.",
            "short",
            (_sum("sidelook_dimension_feed_backlog"),),
        ),
        Panel(
            "Forgotten keys",
            "Keys dropped in a second since they may have changed, by who said so.",
            "ops",
            (
                Query(
                    total(rate("sidelook_invalidations_total"), DIMENSION, "origin"),
                    "{{dimension}} {{origin}}",
                ),
            ),
        ),
        Panel(
            "Messages of no change",
            "In a second, by why; for an undecodable one everything is forgotten.",
            "ops",
            (
                Query(
                    total(
                        rate("sidelook_dimension_feed_unused_messages_total"), DIMENSION, "reason"
                    ),
                    "{{dimension}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Whole tables",
            "Sidecars that hold the table whole, and those that read it just now.",
            "none",
            (
                _sum("sidelook_dimension_whole", "{{dimension}} whole"),
                _sum("sidelook_dimension_loading", "{{dimension}} loading"),
            ),
        ),
        Panel(
            "Loads by result",
            "Loads of whole tables in the last hour, by how they ended.",
            "none",
            (
                Query(
                    total(
                        f"increase({of_dimensions('sidelook_dimension_loads_total')}[1h])",
                        DIMENSION,
                        "result",
                    ),
                    "{{dimension}} {{result}}",
                ),
            ),
        ),
        Panel(
            "Time of a load",
            "Duration of the last load that ended well, in the slowest sidecar.",
            "s",
            (_worst("sidelook_dimension_load_seconds"),),
        ),
    ),
)
STREAMS = Row(
    "Streams",
    (
        Panel(
            "Channels",
            "Open channels by whether they have something to say for now.",
            "none",
            (
                Query(
                    total(of_dimensions("sidelook_channels"), DIMENSION, "channel_state"),
                    "{{dimension}} {{channel_state}}",
                ),
            ),
            Look.STACK,
            QUARTER,
        ),
        Panel(
            "Credit, backlog, in flight",
            "Records that clients may have unanswered, that they may not send yet, and that wait "
            "for their answer.",
            "short",
            (
                _sum("sidelook_credit_records", "{{dimension}} credit"),
                _sum("sidelook_backlog_records", "{{dimension}} backlog"),
                _sum("sidelook_in_flight_records", "{{dimension}} in flight"),
            ),
            width=QUARTER,
        ),
        Panel(
            "Held back",
            "Share of the records that are ready and may not be sent. Alert at one half for 10 "
            "minutes.",
            "percentunit",
            (
                Query(
                    f"{total(of_dimensions('sidelook_backlog_records'), DIMENSION)} / ("
                    f"{total(of_dimensions('sidelook_backlog_records'), DIMENSION)} + "
                    f"{total(of_dimensions('sidelook_credit_records'), DIMENSION)} > 0)",
                    "{{dimension}}",
                ),
            ),
            width=QUARTER,
        ),
        Panel(
            "Event time of streams",
            "How far the streams' event time is behind the clock, in the worst sidecar.",
            "s",
            (
                Query(
                    largest(
                        f"time() - {of_dimensions('sidelook_stream_watermark_seconds')}", DIMENSION
                    ),
                    "{{dimension}}",
                ),
            ),
            width=QUARTER,
        ),
    ),
)
CACHES = Row(
    "Caches",
    (
        Panel(
            "Bytes",
            "What the caches hold and may hold. The bound falls while memory is short.",
            "bytes",
            (
                _sum("sidelook_cache_bytes", "{{dimension}} held"),
                _sum("sidelook_cache_max_bytes", "{{dimension}} bound"),
            ),
        ),
        Panel(
            "Rows",
            "Entries, known absences included.",
            "short",
            (_sum("sidelook_cache_rows"),),
        ),
        Panel(
            "Entries that left",
            "In a second, by why. Many by size: the cache is too small for the keys in use.",
            "ops",
            (
                Query(
                    total(rate("sidelook_cache_evictions_total"), DIMENSION, "reason"),
                    "{{dimension}} {{reason}}",
                ),
            ),
        ),
    ),
)
PROCESS = Row(
    "Process",
    (
        Panel(
            "Lag of the event loop",
            "Longest delay of a timer in 15 seconds, by pod. Alert at half a second for 10 "
            "minutes.",
            "s",
            (_by_pod("sidelook_event_loop_lag_seconds"),),
            width=HALF,
        ),
        Panel(
            "Memory in use",
            "Share of what there may be: caches shrink from 85 % on, no credit from 92 %, refusals "
            "from 95 %.",
            "percentunit",
            (_by_pod("sidelook_memory_used_ratio"),),
            width=HALF,
        ),
        Panel(
            "Memory pressure",
            "What is given up: 0 nothing, 1 cached rows, 2 credit, too, 3 requests, too.",
            "none",
            (_by_pod("sidelook_memory_pressure_level"),),
        ),
        Panel(
            "Resident memory",
            "All that the process has, what it needs to run included.",
            "bytes",
            (_by_pod("sidelook_memory_resident_bytes"),),
        ),
        Panel(
            "Versions",
            "Sidecars by their version: two of them while a new one is rolled out.",
            "none",
            (Query(total(of_processes("sidelook_build_info"), "kind"), "{{kind}}"),),
            Look.STACK,
        ),
        Panel(
            "Certificate ends in",
            "Time that is left of the certificate of listen.tls: its end, which is Unix time, less "
            "the clock. Empty without TLS. Alert below a week, and below a day.",
            "s",
            (
                Query(
                    largest(
                        f"{of_processes('sidelook_tls_certificate_expiry_seconds')} - time()",
                        "pod",
                        "instance",
                    ),
                    "{{pod}} {{instance}}",
                ),
            ),
            width=HALF,
        ),
        Panel(
            "Renewals of the certificate",
            "New certificate files in the last hour, by what became of them: after a refused one "
            "the former stays. Empty without TLS.",
            "none",
            (
                Query(
                    total(
                        f"increase({of_processes('sidelook_tls_certificate_renewals_total')}[1h])",
                        "result",
                    ),
                    "{{result}}",
                ),
            ),
            width=HALF,
        ),
    ),
)
