"""The recent errors of a dimension, as JSON values.

Only their form: what is remembered, and for how long, is the engine's.
"""

from typing import Any

from service.engine.recent_errors import RecentErrors


def recent_errors(errors: RecentErrors) -> list[dict[str, Any]]:
    """All of them, with ages in place of moments, which are nobody else's."""
    now = errors.now()
    return [
        {
            "code": error.code.value,
            "detail": error.detail,
            "queries": error.queries,
            "keys": error.keys,
            "first_ago_s": now - error.first_at,
            "last_ago_s": now - error.last_at,
        }
        for error in errors.latest()
    ]
