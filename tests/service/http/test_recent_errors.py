"""Recent errors are told by their age, as JSON values."""

import orjson

from lookup_core.errors import BackendError, ErrorCode
from service.engine.recent_errors import RecentErrors
from service.http.routes.dimensions import recent_errors


def test_moments_are_told_as_ages() -> None:
    """A reader has another clock: how long ago it was means the same to both."""
    moments = iter([100.0, 107.0, 110.0])  # two failures, and who asks
    errors = RecentErrors(lambda: next(moments))
    for _ in range(2):
        errors.on_query_failed(BackendError(ErrorCode.TIMEOUT, "customers: too slow"))

    told = orjson.loads(orjson.dumps(recent_errors(errors)))

    assert told == [
        {
            "code": "timeout",
            "detail": "customers: too slow",
            "queries": 2,
            "keys": 0,
            "first_ago_s": 10.0,
            "last_ago_s": 3.0,
        }
    ]
