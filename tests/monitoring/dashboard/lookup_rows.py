"""The upper part of the dashboard: what is asked, how it ends, and what the stores make of it.

Panels only; selectors stand in `selectors`.
"""

from tests.monitoring.dashboard.panel import HALF, SIXTH, Alarm, Look, Panel, Query, Row
from tests.monitoring.dashboard.selectors import (
    DIMENSION,
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
            "Keys looked up in a second, however they ended.",
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
            "Share of the lookups that a cached row answers, stale ones included.",
            "percentunit",
            (Query(f"{total(rate(_LOOKUPS, _CACHED))} / {total(rate(_LOOKUPS))}", "cached"),),
            Look.FIGURE,
            SIXTH,
        ),
        Panel(
            "Not available",
            "Sidecars that take no lookups in some dimension, since its table cannot be described.",
            "none",
            (Query(total(f"{of_dimensions('sidelook_dimension_available')} == bool 0"), "down"),),
            Look.FIGURE,
            SIXTH,
            Alarm(warning=1, critical=1),
        ),
        Panel(
            "Breakers open",
            "Breakers that hold queries back, since the store does not answer.",
            "none",
            (Query(total(f"{of_dimensions('sidelook_breaker_state')} > bool 0"), "open"),),
            Look.FIGURE,
            SIXTH,
            Alarm(warning=1, critical=10),
        ),
        Panel(
            "Sidecars",
            "Sidecars that are scraped. None: see whether Prometheus reaches port 8816.",
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
            "Keys in a second by how their lookup ended: all of a request, distinct ones of a "
            "stream's batch.",
            "ops",
            (Query(total(rate(_LOOKUPS), "outcome"), "{{outcome}}"),),
            Look.STACK,
            HALF,
        ),
        Panel(
            "Lookups by dimension",
            "The same by the table that is asked.",
            "ops",
            (Query(total(rate(_LOOKUPS), DIMENSION), "{{dimension}}"),),
            width=HALF,
        ),
        Panel(
            "Failing share",
            "Errors and timeouts by all lookups. A missing row is none of them.",
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
            "Share that a cached row answers. Known absences answer, too, and count as missing.",
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
            "Time of a request",
            "From a lookup request, of any number of keys, to its last answer.",
            "s",
            (
                Query(quantile(0.5, "sidelook_lookup_seconds"), "{{dimension}} half"),
                Query(quantile(0.99, "sidelook_lookup_seconds"), "{{dimension}} 99 %"),
            ),
        ),
    ),
)
STORE = Row(
    "Store",
    (
        Panel(
            "Queries",
            "Queries in a second by how they ended, retries included.",
            "ops",
            (Query(total(rate("sidelook_backend_queries_total"), "result"), "{{result}}"),),
            Look.STACK,
        ),
        Panel(
            "Keys in a query",
            "Mean size of the batches. Small ones under load: raise batch.linger.",
            "short",
            (Query(mean("sidelook_backend_batch_keys"), "{{dimension}}"),),
        ),
        Panel(
            "Time of a query",
            "Duration of the queries at the store.",
            "s",
            (
                Query(quantile(0.5, "sidelook_backend_query_seconds"), "{{dimension}} half"),
                Query(quantile(0.99, "sidelook_backend_query_seconds"), "{{dimension}} 99 %"),
            ),
        ),
        Panel(
            "Slots in use",
            "Queries that run at once, by how many may. Alert at 90 % for 15 minutes.",
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
            "Queries at once",
            "What the concurrency limit allows, which falls while the store is slow, and what is "
            "under way at the scrape.",
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
            "The worst of all sidecars: 0 queries go, 1 the store is probed, 2 queries are held.",
            "none",
            (Query(largest(of_dimensions("sidelook_breaker_state"), DIMENSION), "{{dimension}}"),),
        ),
        Panel(
            "Keys that wait for a query",
            "Distinct keys that are in no query yet. Grows when the store sets the pace.",
            "short",
            (Query(total(of_dimensions("sidelook_queued_keys"), DIMENSION), "{{dimension}}"),),
        ),
        Panel(
            "Further tries, shared flights",
            "Tries after the first in a second, and keys that joined a query under way.",
            "ops",
            (
                Query(total(rate("sidelook_retries_total"), DIMENSION), "{{dimension}} tries"),
                Query(
                    total(rate("sidelook_coalesced_keys_total"), DIMENSION), "{{dimension}} shared"
                ),
            ),
        ),
        Panel(
            "Tables without an index",
            "Sidecars whose store reads the whole table for each query. The log has the remedy.",
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
