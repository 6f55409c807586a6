"""A dimension keeps what people ask it for, and passes on what monitors want."""

from lookup_core.errors import BackendError, ErrorCode
from service.engine.observer import NullObserver, QueryStatus
from service.engine.recent_errors import DimensionRecord
from tests.service.engine.running import DiaryObserver, QueryEnded, customers, running, typed

GONE = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "customers: nothing listens there")


def test_queries_are_counted_with_their_keys() -> None:
    """Every try counts, however it ended."""
    record = DimensionRecord(NullObserver(), clock=lambda: 0.0)

    record.query_ended("customers", keys=3, seconds=0.1, result=QueryStatus.OK)
    record.query_ended("customers", keys=4, seconds=0.1, result=QueryStatus.ERROR)

    assert (record.queries, record.batch_keys) == (2, 7)


def test_observer_is_told_all() -> None:
    """Who listened before still does."""
    diary = DiaryObserver()
    record = DimensionRecord(diary, clock=lambda: 0.0)

    record.query_ended("customers", keys=3, seconds=0.1, result=QueryStatus.OK)
    record.lookup_ended("customers", seconds=0.1)

    assert (diary.queries, diary.lookups) == ([QueryEnded(3, QueryStatus.OK)], 1)


async def test_running_dimension_keeps_its_record() -> None:
    """A query that fails stands in it, with the lookups that ended so."""
    backend = customers()
    backend.fail_next(1, GONE)
    async with running(backend) as dimension:
        await dimension.lookup(typed(7, 8), columns=None, timeout_s=None)

    (error,) = dimension.record.errors.latest()
    assert (error.code, error.detail, error.queries, error.keys) == (GONE.code, GONE.detail, 1, 2)
    assert (dimension.record.queries, dimension.record.batch_keys) == (1, 2)
