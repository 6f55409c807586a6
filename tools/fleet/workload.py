"""Workload of a Spark job: micro-batches whose tasks start together, with Zipf keys."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension.dimension_events import ChannelId, Delivery
from lookup_core.errors import SidelookError
from lookup_core.keys.typed_keys import TypedKeys
from service.engine.dimension import Dimension
from tools.fleet.sidecar import SCHEMA

WARM_SHARE = 0.9  # of the records of a micro-batch
FAILED = (Outcome.TIMEOUT, Outcome.ERROR)
_NONE = np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True)
class JobModel:
    """One executor's part of the stream, and the driver's rhythm."""

    tasks: int = 4  # per executor and micro-batch
    records_per_s: int = 1000  # per executor
    interval_s: float = 5.0  # between the starts of micro-batches
    launch_s: float = 0.2  # within which the driver starts the tasks of a micro-batch
    most_s: float = 60.0  # of records in one micro-batch
    table_rows: int = 20_000
    zipf: float = 1.1


class ZipfKeys:
    """Draws keys of a table; a row's frequency falls with a power of its rank."""

    def __init__(self, job: JobModel, seed: int) -> None:
        weights = np.arange(1, job.table_rows + 1) ** -job.zipf
        self._shares = np.cumsum(weights) / weights.sum()
        self._random = np.random.default_rng(seed)

    def draw(self, records: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The distinct keys of records, and the number of records of each."""
        ranks = np.searchsorted(self._shares, self._random.random(records))
        keys, counts = np.unique(ranks, return_counts=True)
        return keys.astype(np.int64), counts.astype(np.int64)


@dataclass(slots=True)
class MicroBatch:
    """One micro-batch: its lookups (distinct keys of a task) and records by outcome."""

    began_at: float
    ended_at: float = 0.0
    submitted: int = 0
    lookups: Counter[Outcome] = field(default_factory=Counter)
    records: Counter[Outcome] = field(default_factory=Counter)

    @property
    def hit_share(self) -> float:
        """The share of records whose row was cached."""
        return self.records[Outcome.HIT] / max(self.records.total(), 1)

    @property
    def failed(self) -> int:
        """The lookups that ended without an answer of the database."""
        return sum(self.lookups[outcome] for outcome in FAILED)

    def count(self, outcomes: npt.NDArray[np.uint8], weights: npt.NDArray[np.int64]) -> None:
        """Add lookups with these outcomes; each stands for `weights` records."""
        lookups = np.bincount(outcomes, minlength=len(Outcome))
        records = np.bincount(outcomes, weights=weights, minlength=len(Outcome))
        for outcome in Outcome:
            self.lookups[outcome] += int(lookups[outcome])
            self.records[outcome] += int(records[outcome])


class _TaskLookup:
    """The lookup of one task: counts its answers until the last one."""

    def __init__(self, batch: MicroBatch, weights: npt.NDArray[np.int64]) -> None:
        self._batch = batch
        self._weights = weights
        self.ended = asyncio.Event()

    def take(self, answer: Answer) -> None:
        self._batch.count(answer.outcomes, self._weights[answer.positions])

    def deliver(self, delivery: Delivery) -> None:
        self.take(delivery.answer)
        if delivery.is_last:
            self.ended.set()

    def fail(self) -> None:
        outcomes = np.full(len(self._weights), Outcome.ERROR, np.uint8)
        self._batch.count(outcomes, self._weights)


@dataclass(frozen=True, slots=True)
class _Task:
    """One task of a micro-batch, in an executor."""

    dimension: Dimension
    channel: ChannelId
    batch: MicroBatch


class Driver:
    """Starts the tasks of a micro-batch on all executors, and waits for all of them."""

    def __init__(self, job: JobModel, dimensions: list[Dimension], seed: int) -> None:
        self._job = job
        self._dimensions = dimensions
        self._keys = ZipfKeys(job, seed)
        self._random = np.random.default_rng(seed + 1)
        self.batches: list[MicroBatch] = []

    async def run(self, until: float, *, backlog_s: float = 0.0) -> None:
        """Run micro-batches until then; the first one has the records of `backlog_s` more."""
        now = asyncio.get_running_loop().time
        owed_s = self._job.interval_s + backlog_s
        while (began_at := now()) < until:
            await self._run_batch(began_at, round(self._records(owed_s) / self._job.tasks))
            next_at = began_at + self._job.interval_s
            await asyncio.sleep(max(0.0, next_at - now()))
            owed_s = now() - began_at

    def _records(self, owed_s: float) -> float:
        return self._job.records_per_s * min(owed_s, self._job.most_s)

    async def _run_batch(self, began_at: float, records: int) -> None:
        batch = MicroBatch(began_at)
        self.batches.append(batch)
        async with asyncio.TaskGroup() as tasks:
            for dimension in self._dimensions:
                for number in range(self._job.tasks):
                    task = _Task(dimension, ChannelId(number + 1), batch)
                    delay_s = self._random.random() * self._job.launch_s
                    tasks.create_task(self._run_task(task, records, delay_s))
        batch.ended_at = asyncio.get_running_loop().time()

    async def _run_task(self, task: _Task, records: int, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        keys, weights = self._keys.draw(records)
        task.batch.submitted += len(keys)
        lookup = _TaskLookup(task.batch, weights)
        timeout_s = task.dimension.settings.timeout_s
        try:
            await task.dimension.schema.wait(timeout_s)
            submitted = task.dimension.submit(
                TypedKeys(pa.record_batch([pa.array(keys)], SCHEMA.key), _NONE, {}),
                columns=None,
                channel=task.channel,
                timeout_s=timeout_s,
                deliver=lookup.deliver,
            )
        except SidelookError:
            lookup.fail()
            return
        for answer in submitted.answers:
            lookup.take(answer)
        if not submitted.is_done:
            await lookup.ended.wait()
