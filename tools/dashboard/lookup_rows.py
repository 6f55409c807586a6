"""Upper rows of the dashboard: overview, lookups and backend queries."""

from tools.dashboard.panels import (
    DIMENSION,
    HALF,
    SIXTH,
    Alarm,
    Look,
    Panel,
    Query,
    Row,
    largest,
    mean,
    of_dimensions,
    of_processes,
    quantile,
    rate,
    total,
)

_LOOKUPS = "sidelook_lookups_total"
_FAILED = 'outcome=~"error|timeout"'
_CACHED = 'outcome=~"hit|stale"'

GLANCE = Row(
    "At a glance",
    (
        Panel(
            "Lookups",
            "Keys looked up per second, with any outcome.",
            "ops",
            (Query(total(rate(_LOOKUPS)), "lookups"),),
            Look.FIGURE,
            SIXTH,
        ),
        Panel(
            "Failing",
            "Share of the lookups that end in an error or a timeout. Alerts at 1 % and 5 %.",
            "percentunit",
            (Query(f"{total(rate(_LOOKUPS, _FAILED))} / {total(rate(_LOOKUPS))}", "failing"),),
            Look.FIGURE,
            SIXTH,
            Alarm(warning=0.01, critical=0.05),
        ),
        Panel(
            "From the cache",
            "Share of the lookups answered from the cache, stale rows included.",
            "percentunit",
            (Query(f"{total(rate(_LOOKUPS, _CACHED))} / {total(rate(_LOOKUPS))}", "cached"),),
            Look.FIGURE,
            SIXTH,
        ),
        Panel(
            "Not available",
            "Sidecars that refuse lookups in a dimension, because its schema cannot be read.",
            "none",
            (Query(total(f"{of_dimensions('sidelook_dimension_available')} == bool 0"), "down"),),
            Look.FIGURE,
            SIXTH,
            Alarm(warning=1, critical=1),
        ),
        Panel(
            "Breakers open",
            "Circuit breakers that stop queries, because they fail.",
            "none",
            (Query(total(f"{of_dimensions('sidelook_breaker_state')} > bool 0"), "open"),),
            Look.FIGURE,
            SIXTH,
            Alarm(warning=1, critical=10),
        ),
        Panel(
            "Sidecars",
            "Sidecars that are scraped. If there is none, check that Prometheus reaches port 8816.",
            "none",
            (Query(total(of_processes("sidelook_build_info")), "sidecars"),),
            Look.FIGURE,
            SIXTH,
        ),
    ),
)
LOOKUPS = Row(
    "Lookups",
    (
        Panel(
            "Lookups by outcome",
            "Keys per second by outcome: all keys of an HTTP request, distinct keys of a stream's "
            "batch.",
            "ops",
            (Query(total(rate(_LOOKUPS), "outcome"), "{{outcome}}"),),
            Look.STACK,
            HALF,
        ),
        Panel(
            "Lookups by dimension",
            "Keys per second by dimension.",
            "ops",
            (Query(total(rate(_LOOKUPS), DIMENSION), "{{dimension}}"),),
            width=HALF,
        ),
        Panel(
            "Failing share",
            "Errors and timeouts as a share of all lookups. A missing key is neither.",
            "percentunit",
            (
                Query(
                    f"{total(rate(_LOOKUPS, _FAILED), DIMENSION)}"
                    f" / {total(rate(_LOOKUPS), DIMENSION)}",
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Hit ratio",
            "Share answered by a cached row. Negative entries count as missing.",
            "percentunit",
            (
                Query(
                    f"{total(rate(_LOOKUPS, _CACHED), DIMENSION)}"
                    f" / {total(rate(_LOOKUPS), DIMENSION)}",
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Duration of a request",
            "From a lookup request, of any number of keys, to its last result.",
            "s",
            (
                Query(quantile(0.5, "sidelook_lookup_seconds"), "{{dimension}} half"),
                Query(quantile(0.99, "sidelook_lookup_seconds"), "{{dimension}} 99 %"),
            ),
        ),
    ),
)
BACKEND = Row(
    "Backend",
    (
        Panel(
            "Queries",
            "Queries per second by result, retries included.",
            "ops",
            (Query(total(rate("sidelook_backend_queries_total"), "result"), "{{result}}"),),
            Look.STACK,
        ),
        Panel(
            "Keys per query",
            "Mean batch size. If it is small under load, raise batch.linger.",
            "short",
            (Query(mean("sidelook_backend_batch_keys"), "{{dimension}}"),),
        ),
        Panel(
            "Duration of a query",
            "Duration of the queries to the backend.",
            "s",
            (
                Query(quantile(0.5, "sidelook_backend_query_seconds"), "{{dimension}} half"),
                Query(quantile(0.99, "sidelook_backend_query_seconds"), "{{dimension}} 99 %"),
            ),
        ),
        Panel(
            "Slots in use",
            "Running queries as a share of the concurrency limit. Alert at 90 % for 15 minutes.",
            "percentunit",
            (
                Query(
                    f"{total(rate('sidelook_backend_query_seconds_sum'), DIMENSION)}"
                    f" / {total(of_dimensions('sidelook_concurrency_limit'), DIMENSION)}",
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Concurrent queries",
            "The concurrency limit, which falls while the backend is slow, and queries in flight.",
            "none",
            (
                Query(
                    total(of_dimensions("sidelook_concurrency_limit"), DIMENSION),
                    "{{dimension}} limit",
                ),
                Query(
                    total(of_dimensions("sidelook_queries_in_flight"), DIMENSION),
                    "{{dimension}} in flight",
                ),
            ),
        ),
        Panel(
            "Breaker",
            "The highest state of all sidecars: 0 closed, 1 half-open, 2 open.",
            "none",
            (Query(largest(of_dimensions("sidelook_breaker_state"), DIMENSION), "{{dimension}}"),),
        ),
        Panel(
            "Keys waiting for a query",
            "Distinct keys in no query yet. Grows when the backend is the bottleneck.",
            "short",
            (Query(total(of_dimensions("sidelook_queued_keys"), DIMENSION), "{{dimension}}"),),
        ),
        Panel(
            "Waiting for a connection",
            "Sidecars in which a query was due and all connections to its database were in use.",
            "short",
            (
                Query(
                    total(rate("sidelook_connection_wait_seconds_total"), DIMENSION),
                    "{{dimension}}",
                ),
            ),
        ),
        Panel(
            "Retries and coalesced keys",
            "Retries per second, and keys that joined a query in flight.",
            "ops",
            (
                Query(total(rate("sidelook_retries_total"), DIMENSION), "{{dimension}} retries"),
                Query(
                    total(rate("sidelook_coalesced_keys_total"), DIMENSION),
                    "{{dimension}} coalesced",
                ),
            ),
        ),
        Panel(
            "Tables without an index",
            "Sidecars whose queries scan the whole table. The log has the remedy.",
            "none",
            (
                Query(
                    total(f"{of_dimensions('sidelook_lookup_uses_index')} == bool 0", DIMENSION),
                    "{{dimension}}",
                ),
            ),
        ),
    ),
)
