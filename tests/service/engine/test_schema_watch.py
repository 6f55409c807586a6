"""A dimension's schema, known as soon as its store tells it."""

import asyncio
from collections import deque

import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.backends.fake import FakeBackend
from service.engine.schema_watch import SchemaWatch
from tests.service.engine.running import PATIENCE_S, ROWS, SCHEMA, customers

DOWN = BackendError(ErrorCode.UPSTREAM_UNAVAILABLE, "customers: down")
FORBIDDEN = BackendError(ErrorCode.FORBIDDEN, "customers: no right to read")


class FailingFirst(FakeBackend):
    """Describes itself after these failures."""

    def __init__(self, *failures: Exception) -> None:
        super().__init__(ROWS, SCHEMA)
        self.failures = deque(failures)

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Fail, or tell the schema."""
        if self.failures:
            raise self.failures.popleft()
        return await super().describe(timeout_s=timeout_s)


async def test_schema_is_learned() -> None:
    """A store that is up tells the schema at the first question."""
    watch = SchemaWatch("customers", customers())

    assert await watch.learn() is SCHEMA
    assert watch.known() is SCHEMA
    assert await watch.wait(0.0) is SCHEMA


async def test_unasked_store_is_unavailable() -> None:
    """Before the store was asked, a lookup may be tried again later."""
    watch = SchemaWatch("customers", customers())

    with pytest.raises(BackendError) as caught:
        await watch.wait(0.0)

    assert caught.value.code is ErrorCode.UPSTREAM_UNAVAILABLE
    assert caught.value.is_retryable


async def test_store_is_asked_until_it_answers() -> None:
    """Failures are outlasted, defects of the adapter included."""
    store = FailingFirst(DOWN, ZeroDivisionError())
    watch = SchemaWatch("customers", store)

    assert await watch.learn() is SCHEMA
    assert not store.failures


async def test_last_fault_is_told() -> None:
    """While the schema is unknown, the fault that was seen last says why."""
    store = customers()
    store.describe_error = DOWN
    watch = SchemaWatch("customers", store)
    learning = asyncio.ensure_future(watch.learn())
    await asyncio.sleep(0)  # the first question
    store.describe_error = FORBIDDEN

    with pytest.raises(BackendError) as caught:
        await watch.wait(0.5)  # the second question comes within 0.1 s
    learning.cancel()

    assert caught.value is FORBIDDEN


async def test_waiters_wake_when_it_is_known() -> None:
    """Whoever waits for the schema gets it as soon as the store is up."""
    store = customers()
    store.describe_error = DOWN
    watch = SchemaWatch("customers", store)
    learning = asyncio.ensure_future(watch.learn())
    waiting = asyncio.ensure_future(watch.wait(PATIENCE_S))
    await asyncio.sleep(0)  # the first question
    store.describe_error = None

    assert await waiting is SCHEMA
    assert await learning is SCHEMA
