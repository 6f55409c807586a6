"""A dimension at work over a fake store, and an observer that keeps a diary.

What the answers must be is the tests' business.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import BatchSettings, DimensionSettings, RetrySettings
from service.connectors.memory.backend import FakeBackend
from service.engine.dimension import Dimension
from service.engine.observer import QueryStatus
from service.engine.refresher import RefreshSources
from service.engine.tracer import Tracer

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8(), "tier": pa.int32()})
)
ROWS = pa.table(
    {
        "id": pa.array([6, 6, 7, 8], pa.int64()),
        "name": pa.array(["Eve", "Eva", "Ada", "Bert"], pa.utf8()),
        "tier": pa.array([0, 0, 1, 2], pa.int32()),
    }
)
PATIENCE_S = 10.0  # a test that waits longer has failed


def customers() -> FakeBackend:
    """7 is Ada, 8 is Bert, 6 has two rows, others have none."""
    return FakeBackend(ROWS, SCHEMA)


def settings(
    *, batch: BatchSettings | None = None, retry: RetrySettings | None = None, keys: int = 1000
) -> DimensionSettings:
    """No retries, and no hurry."""
    return DimensionSettings(
        "customers",
        batch=batch or BatchSettings(),
        retry=retry or RetrySettings(max_retries=0),
        timeout_s=PATIENCE_S,
        max_waiting_keys=keys,
    )


def typed(*keys: int | None) -> TypedKeys:
    """Keys of one request; None is NULL."""
    nulls = [at for at, key in enumerate(keys) if key is None]
    columns = pa.record_batch([pa.array(keys, pa.int64())], SCHEMA.key)
    return TypedKeys(columns, np.array(nulls, np.int32), {})


def told(answers: list[Answer]) -> dict[int, str]:
    """Answers in words by position: the outcome, and the name or the error code."""
    words = {}
    for answer in answers:
        names = [None] * answer.size if answer.rows is None else answer.rows["name"].to_pylist()
        for at, outcome, name in zip(
            answer.positions.tolist(), answer.outcomes.tolist(), names, strict=True
        ):
            assert at not in words
            words[at] = f"{Outcome(outcome).label} {name or answer.errors.get(at, '')}".strip()
    return words


def is_fit(dimension: Dimension) -> bool:
    """Whether the dimension takes lookups now."""
    try:
        dimension.schema  # noqa: B018  asked for the error alone
    except BackendError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """An entry of the diary."""

    keys: int
    result: QueryStatus


class DiaryObserver:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.queries: list[QueryEnded] = []
        self.lookups = 0

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """Note it."""
        assert dimension == "customers"
        assert seconds >= 0
        self.queries.append(QueryEnded(keys, result))

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """Count it."""
        assert dimension == "customers"
        assert seconds >= 0
        self.lookups += 1

    async def wait_for_queries(self, count: int) -> None:
        """Wait until so many queries have ended."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.queries) < count:  # noqa: ASYNC110  the port must not wait or wake
                await asyncio.sleep(0)


@asynccontextmanager
async def running(
    backend: FakeBackend,
    chosen: DimensionSettings | None = None,
    *,
    sources: RefreshSources | None = None,
    observer: DiaryObserver | None = None,
    tracer: Tracer | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Dimension]:
    """The dimension `customers`, described by its store, until the block ends."""
    dimension = Dimension(
        chosen or settings(),
        backend,
        sources=sources,
        observer=observer,
        tracer=tracer,
        clock=clock,
    )
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE_S):
        task = tasks.create_task(dimension.run())
        await dimension.wait_until_described(PATIENCE_S)
        yield dimension
        task.cancel()
