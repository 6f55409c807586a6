"""What a sidecar tells of itself, as `/v1/status` has it.

Not a test.
"""

from typing import Any

DIMENSION: dict[str, Any] = {
    "name": "airports",
    "unavailable": None,
    "lookups": {"hit": 4, "stale": 2, "missing": 3, "error": 0},
    "cache": {"mode": "partial", "rows": 1234, "bytes": 2**20, "max_bytes": 2**28},
    "freshness": {"feed": {"state": "live", "last_error": None}, "load": None},
    "backend": {
        "queries": 3,
        "batch_keys": 4000,
        "queries_in_flight": 1,
        "concurrency_limit": 8,
        "breaker": "closed",
        "queued_keys": 5,
    },
    "waiting_keys": 7,
    "recent_errors": [],
}
ERROR: dict[str, Any] = {
    "code": "backend_unavailable",
    "detail": "no connection",
    "queries": 2,
    "keys": 1234,
    "first_ago_s": 70.0,
    "last_ago_s": 3.0,
}
CHANNEL: dict[str, Any] = {
    "connection": 1,
    "channel": 2,
    "dimension": "airports",
    "origin": "stage 3 partition 1 attempt 0 task 9",
    "exclusive_records": 1000,
    "floating_records": 500,
    "credit_records": 1200,
    "backlog_records": 40,
    "in_flight_records": 300,
    "watermark_ms": 60_000,
    "is_idle": False,
}
STATUS: dict[str, Any] = {
    "version": "1.2",
    "uptime_s": 90.0,
    "memory": {"resident_bytes": 2**20, "limit_bytes": 2**29},
    "event_loop_lag_s": 0.002,
    "is_draining": False,
    "not_ready": {},
    "dimensions": [DIMENSION],
    "channels": [CHANNEL],
}
