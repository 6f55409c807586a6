"""A dimension over a fake backend, its callers, and an observer that records queries.

The tests decide about the answers.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.dimension_events import ChannelId, Delivery, Submitted
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import BatchSettings, DimensionSettings, RetrySettings
from service.engine.dimension import Dimension
from service.engine.observer import QueryStatus
from service.engine.refresher import RefreshSources
from service.engine.shared_connections import ConnectionShare
from service.engine.tracer import Tracer
from service.resources.shared_memory import SharedCaches
from tests.service.connectors.fake_backend import FakeBackend

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
    """No retries, a long timeout, many queries."""
    return DimensionSettings(
        "customers",
        batch=batch or BatchSettings(max_in_flight=8),
        retry=retry or RetrySettings(max_retries=0),
        timeout_s=PATIENCE_S,
        max_waiting_keys=keys,
    )


ONE_BY_ONE = settings(batch=BatchSettings(max_keys=1, max_in_flight=1))


def typed(*keys: int | None) -> TypedKeys:
    """Keys of one request; None is NULL."""
    nulls = [at for at, key in enumerate(keys) if key is None]
    columns = pa.record_batch([pa.array(keys, pa.int64())], SCHEMA.key)
    return TypedKeys(columns, np.array(nulls, np.int32), {})


def in_words(answers: list[Answer]) -> dict[int, str]:
    """Answers by position: the outcome, and the name or the error code."""
    words = {}
    for answer in answers:
        names = [None] * answer.size if answer.rows is None else answer.rows["name"].to_pylist()
        for at, outcome, name in zip(
            answer.positions.tolist(), answer.outcomes.tolist(), names, strict=True
        ):
            assert at not in words
            words[at] = f"{Outcome(outcome).label} {name or answer.errors.get(at, '')}".strip()
    return words


told = in_words  # the name that suites outside this folder use


async def lookup(
    dimension: Dimension, *keys: int | None, timeout_s: float | None = None
) -> dict[int, str]:
    """Look keys up, and wait for all answers."""
    return in_words(await dimension.lookup(typed(*keys), columns=None, timeout_s=timeout_s))


def start(
    dimension: Dimension, *keys: int | None, timeout_s: float | None = None
) -> "asyncio.Task[dict[int, str]]":
    """A caller in a task of its own, which begins at its next turn."""
    return asyncio.ensure_future(lookup(dimension, *keys, timeout_s=timeout_s))


@dataclass(slots=True)
class Caller:
    """Submits lookups, and keeps immediate answers and later deliveries."""

    dimension: Dimension
    answers: list[Answer] = field(default_factory=list)
    deliveries: list[tuple[dict[int, str], bool]] = field(default_factory=list)
    is_done: bool = False

    def submit(
        self,
        *keys: int | None,
        event_time_ms: int | None = None,
        typed_keys: TypedKeys | None = None,
    ) -> Submitted:
        """Submit a lookup of one channel."""
        submitted = self.dimension.submit(
            typed_keys or typed(*keys),
            columns=None,
            channel=ChannelId(1),
            timeout_s=PATIENCE_S,
            deliver=self._deliver,
            event_time_ms=event_time_ms,
        )
        self.answers += submitted.answers
        self.is_done = submitted.is_done
        return submitted

    async def words(self) -> dict[int, str]:
        """All answers in words, when the last one has come."""
        await until(lambda: self.is_done)
        return in_words(self.answers)

    def _deliver(self, delivery: Delivery) -> None:
        self.answers.append(delivery.answer)
        self.deliveries.append((in_words([delivery.answer]), delivery.is_last))
        self.is_done = delivery.is_last


def queried(backend: FakeBackend) -> list[list[int]]:
    """The keys of each query."""
    return [batch.column(0).to_pylist() for batch in backend.batches]


def is_fit(dimension: Dimension) -> bool:
    """Whether the dimension takes lookups now."""
    try:
        dimension.schema.known()
    except BackendError:
        return False
    return True


async def until(is_so: Callable[[], bool]) -> None:
    """Let others run until this holds; no event reports it."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query that the observer saw."""

    keys: int
    result: QueryStatus


class DiaryObserver:
    """Records what the engine reports."""

    def __init__(self) -> None:
        self.queries: list[QueryEnded] = []
        self.lookups = 0

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """Record the query."""
        assert (dimension, seconds >= 0) == ("customers", True)
        self.queries.append(QueryEnded(keys, result))

    def lookup_ended(self, dimension: str, *, seconds: float) -> None:
        """Count the lookup."""
        assert (dimension, seconds >= 0) == ("customers", True)
        self.lookups += 1

    async def wait_for_queries(self, count: int) -> None:
        """Wait until this many queries have ended."""
        await until(lambda: len(self.queries) >= count)


@asynccontextmanager
async def running(
    backend: FakeBackend,
    chosen: DimensionSettings | None = None,
    *,
    connections: ConnectionShare | None = None,
    sources: RefreshSources | None = None,
    observer: DiaryObserver | None = None,
    tracer: Tracer | None = None,
    shared_caches: SharedCaches | None = None,
    clock: Callable[[], float] | None = None,
    described_s: float = PATIENCE_S,
) -> AsyncIterator[Dimension]:
    """The dimension `customers` until the block ends; described, unless `described_s` is 0."""
    dimension = Dimension(
        chosen or settings(),
        backend,
        connections=connections,
        sources=sources,
        observer=observer,
        tracer=tracer,
        shared_caches=shared_caches,
        clock=clock or asyncio.get_running_loop().time,
    )
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(PATIENCE_S):
        task = tasks.create_task(dimension.run())
        if described_s:
            await dimension.schema.wait(described_s)
        yield dimension
        task.cancel()
