"""Lower rows of the dashboard: freshness, streams, caches and the process."""

from tools.dashboard.panels import (
    DIMENSION,
    HALF,
    QUARTER,
    Look,
    Panel,
    Query,
    Row,
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
            "Maximum lag of cached rows behind the table, in the worst sidecar, and the configured "
            "limit. Alert at twice the limit.",
            "s",
            (
                _worst("sidelook_dimension_staleness_seconds"),
                _worst("sidelook_dimension_staleness_limit_seconds", "{{dimension}} limit"),
            ),
        ),
        Panel(
            "Stalled feeds",
            "Sidecars whose change feed is stalled or behind: they bypass their cache.",
            "none",
            (
                Query(
                    total(f"{of_dimensions('sidelook_dimension_feed_live')} == bool 0", DIMENSION),
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Lag of the feed",
            "Age of the newest change that is known to be applied, in the worst sidecar.",
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
            "Backlog of the feed",
            "Changes that the sidecars have not read yet.",
            "short",
            (_sum("sidelook_dimension_feed_backlog"),),
        ),
        Panel(
            "Invalidated keys",
            "Keys invalidated per second, by origin.",
            "ops",
            (
                Query(
                    total(rate("sidelook_invalidations_total"), DIMENSION, "origin"),
                    "{{dimension}} {{origin}}",
                ),
            ),
        ),
        Panel(
            "Unused messages",
            "Messages per second by reason; an undecodable one invalidates the whole cache.",
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
            "Incomplete feeds",
            "Sidecars whose audit found a change that the feed omitted: they bypass their cache.",
            "none",
            (_sum("sidelook_dimension_feed_incomplete"),),
        ),
        Panel(
            "Audited rows",
            "Rows per second compared with reads of the table, by result. A suspect row differs; a "
            "contradicted one got no event.",
            "ops",
            (
                Query(
                    total(rate("sidelook_dimension_audited_keys_total"), DIMENSION, "result"),
                    "{{dimension}} {{result}}",
                ),
            ),
        ),
        Panel(
            "Full mode",
            "Sidecars with the whole table in memory, and sidecars that are loading it.",
            "none",
            (
                _sum("sidelook_dimension_whole", "{{dimension}} loaded"),
                _sum("sidelook_dimension_loading", "{{dimension}} loading"),
            ),
        ),
        Panel(
            "Loads by result",
            "Loads of whole tables in the last hour, by result.",
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
            "Duration of a load",
            "Duration of the last successful load, in the slowest sidecar.",
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
            "Open channels by state, idle or active.",
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
            "Records that clients may send, that wait for credit, and that wait for their result.",
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
            "Share of the ready records that wait for credit. Alert at one half for 10 minutes.",
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
            "Lag of the streams' event time behind the clock, in the worst sidecar.",
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
            "Size of the caches, and its bound, which falls under memory pressure.",
            "bytes",
            (
                _sum("sidelook_cache_bytes", "{{dimension}} used"),
                _sum("sidelook_cache_max_bytes", "{{dimension}} bound"),
            ),
        ),
        Panel(
            "Rows",
            "Entries, negative entries included.",
            "short",
            (_sum("sidelook_cache_rows"),),
        ),
        Panel(
            "Evictions",
            "Entries per second by reason. Many by size: the cache is too small for its keys.",
            "ops",
            (
                Query(
                    total(rate("sidelook_cache_evictions_total"), DIMENSION, "reason"),
                    "{{dimension}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "From shared memory",
            "Share of the lookups that workers did in shared memory. There each record counts; "
            "in a batch sent to the sidecar, each distinct key.",
            "percentunit",
            (
                Query(
                    f"{total(rate('sidelook_shared_lookups_total'), DIMENSION)}"
                    f" / {total(rate('sidelook_lookups_total'), DIMENSION)}",
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Bytes of shared files",
            "Size of the caches' files in shared memory, which is a part of the caches' bytes.",
            "bytes",
            (_sum("sidelook_shared_cache_bytes"),),
        ),
        Panel(
            "Private caches",
            "Sidecars whose cache workers cannot read. Alert if it ends while workers use it.",
            "none",
            (
                Query(
                    total(f"{of_dimensions('sidelook_cache_shared')} == bool 0", DIMENSION),
                    "{{dimension}}",
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
            "Longest delay of a timer in 15 seconds. Alert at half a second for 10 minutes.",
            "s",
            (_by_pod("sidelook_event_loop_lag_seconds"),),
            width=HALF,
        ),
        Panel(
            "Memory in use",
            "Share of the memory limit: from 85 % caches shrink, from 92 % there is no new credit, "
            "from 95 % requests are refused.",
            "percentunit",
            (_by_pod("sidelook_memory_used_ratio"),),
            width=HALF,
        ),
        Panel(
            "Memory pressure",
            "0 none, 1 caches shrink, 2 also no new credit, 3 also requests are refused.",
            "none",
            (_by_pod("sidelook_memory_pressure_level"),),
        ),
        Panel(
            "Resident memory",
            "Memory of the whole process.",
            "bytes",
            (_by_pod("sidelook_memory_resident_bytes"),),
        ),
        Panel(
            "Versions",
            "Sidecars by version: two versions during a rollout.",
            "none",
            (Query(total(of_processes("sidelook_build_info"), "kind"), "{{kind}}"),),
            Look.STACK,
        ),
        Panel(
            "Certificate ends in",
            "Time until the certificate of listen.tls expires. Empty without TLS. Alerts below a "
            "week and below a day.",
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
            "New certificate files in the last hour, by result: after a refused one the former "
            "stays. Empty without TLS.",
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
