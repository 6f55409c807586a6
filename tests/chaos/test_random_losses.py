"""Seeded runs whose connections are lost at any frame: all modes, one to four lookups.

`SIDELOOK_CHAOS_SEED` repeats the runs from a seed on.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.errors import SidecarUnreachable
from lookup_core.event_time.record_watermarks import EventTimeWatermarks
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.lookup_settings import KeyColumn, LookupSettings, OutputMode, PassSettings
from spark_client.transport.connection import Connection, Timing, Transport
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from spark_client.worker.input_thread import InputThread, WakeUp
from spark_client.worker.lookup_operator import LookupOperator
from spark_client.worker.lookup_plan import LookupPlan
from spark_client.worker.output_columns import AddedPart, column_casts, joined_output
from tests.end_to_end.sidecars import configured, parquet, url_of

SEED = int(os.environ.get("SIDELOOK_CHAOS_SEED") or random.SystemRandom().randrange(2**31))
RUNS = 500
KEYS = 400  # of a dimension; those that NO_ROW divides have no row
NO_ROW = 7
NAMES = ("cached", "uncached", "full")
RECORDS = pa.schema({"number": pa.int64(), "a": pa.int64(), "b": pa.int64(), "at": pa.int64()})
COLUMNS = pa.schema({"value": pa.int64()})
KEY = pa.schema({"key": pa.int64()})
# For each lookup the column of its key: of the records, or the value of an earlier lookup.
A, B, AFTER_FIRST, AFTER_SECOND = KeyColumn(1), KeyColumn(2), KeyColumn(0, 0), KeyColumn(0, 1)
PASSES = [
    (A,),
    (A, B),
    (A, AFTER_FIRST),
    (A, B, AFTER_FIRST),
    (A, AFTER_FIRST, AFTER_SECOND),
    (A, AFTER_FIRST, B, AFTER_FIRST),
]
HANDSHAKE_TIMEOUT_S = 10.0


def value_of(key: int | None) -> int | None:
    """The value of a key in each dimension; often a key again."""
    is_known = key is not None and 0 <= key < KEYS and key % NO_ROW
    return (key * 31 + 5) % (KEYS + 20) if key is not None and is_known else None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A running sidecar with three dimensions of the same rows."""
    keys = [key for key in range(KEYS) if key % NO_ROW]
    rows = pa.table({"key": keys, "value": [value_of(key) for key in keys]})
    with TemporaryDirectory(prefix="sidelook-") as name:  # short: sockets have short paths
        cached = parquet(Path(name), "rows", rows, "key", timeout="60s")
        uncached, full = ({**cached, "cache": {"mode": mode}} for mode in ("none", "full"))
        dimensions = dict(zip(NAMES, (cached, uncached, full), strict=True))
        with (sidecar := configured(Path(name), dimensions)).running():
            yield url_of(sidecar)


@dataclass(slots=True)
class Losses:
    """The connections of one run: some are lost, each after a random number of messages."""

    chance: random.Random
    left: int
    lost: int = 0

    def connect(self, url: str) -> Transport:
        """A connection that will be lost, or a lasting one when enough were lost."""
        transport = handshake(endpoint_of(url), token=None, timeout_s=HANDSHAKE_TIMEOUT_S)
        if not self.left:
            return transport
        self.left -= 1
        return LossyTransport(transport, self.chance.randint(1, 40), self)


class LossyTransport:
    """A `Transport` that is lost before its n-th message, sent or received."""

    def __init__(self, inner: Transport, messages: int, losses: Losses) -> None:
        self._inner = inner
        self._messages = messages
        self._losses = losses

    def send(self, message: bytes) -> None:
        """See `Transport`; a lost message is not sent."""
        if self._passes():
            self._inner.send(message)
        else:
            self._inner.wake()

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """See `Transport`; messages before the lost one are received."""
        messages = self._inner.receive(timeout_s if self._messages else 0.0)
        received = [message for message in messages if self._passes()]
        if not self._messages and not received:
            self._losses.lost += 1
            raise SidecarUnreachable("lossy", "lost on purpose")
        return received

    def wake(self) -> None:
        """See `Transport`."""
        self._inner.wake()

    def close(self) -> None:
        """See `Transport`."""
        self._inner.close()

    def close_after_fork(self) -> None:
        """See `Transport`."""
        self._inner.close_after_fork()

    def _passes(self) -> bool:
        if self._messages:
            self._messages -= 1
        return self._messages > 0


@dataclass(slots=True)
class Run:
    """One partition: its input, its lookups and its losses, all by the seed."""

    seed: int
    url: str
    chance: random.Random = field(init=False)
    mode: OutputMode = field(init=False)
    keys: tuple[KeyColumn, ...] = field(init=False)  # of each lookup
    interval_ms: int | None = field(init=False)  # None: no watermarks
    batches: list[pa.RecordBatch] = field(init=False)
    losses: Losses = field(init=False)

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)  # noqa: S311 -- repeatable
        self.mode = chance.choice(list(OutputMode))
        self.keys = chance.choice(PASSES)
        self.interval_ms = chance.choice([None, 50, 400])
        self.losses = Losses(chance, left=chance.randint(1, 12))
        self.batches, start = [], 0
        for _ in range(chance.randint(1, 8)):
            size = chance.randint(1, 80)
            self.batches.append(self._batch(start, size))
            start += size

    def _batch(self, start: int, size: int) -> pa.RecordBatch:
        chance, numbers = self.chance, range(start, start + size)
        keys = [[chance.choice([None, *range(KEYS + 9)]) for _ in numbers] for _ in "ab"]
        times = [number + chance.randint(-30, 30) for number in numbers]
        columns = [pa.array(each, pa.int64()) for each in (numbers, *keys, times)]
        return pa.record_batch(columns, RECORDS)

    def rows(self) -> list[dict[str, Any]]:
        """The output, in order."""
        connect = partial(self.losses.connect, self.url)
        connection = Connection(connect, url=self.url, timing=Timing(pause=lambda _: None))
        wake_up = WakeUp()
        operator = self._operator(connection, wake_up)
        batches = InputThread(wake_up, most_rows=200, most_bytes=2**20)
        try:
            with batches.reading(self.batches):
                outputs = list(operator.enriched(batches))
        finally:
            operator.close()
        return [row for output in outputs for row in output.to_pylist()]

    def _operator(self, connection: Connection, wake_up: WakeUp) -> LookupOperator:
        names = [self.chance.choice(NAMES) for _ in self.keys]
        requests = [ChannelRequest(name, ("value",), "a run", KEY) for name in names]
        channels = [connection.begin(request, wake=wake_up.set) for request in requests]
        for channel in channels:
            channel.wait_until_open()
        plans = [
            LookupPlan(name, (key,), KEY, column_casts(COLUMNS, COLUMNS, dimension=name), LOOKUP)
            for name, key in zip(names, self.keys, strict=True)
        ]
        parts = [AddedPart(COLUMNS, prefix=f"{number}_") for number in range(len(plans))]
        settings = PassSettings(
            self.mode,
            capacity=self.chance.choice([7, 40, 200, 5_000]),
            pooled_rows=1,  # each batch has its own watermark
            timeout_s=300.0,
            event_time=None if self.interval_ms is None else RECORDS.get_field_index("at"),
            watermark_interval_ms=self.interval_ms,
        )
        output = joined_output(RECORDS, parts)
        return LookupOperator(plans, channels, output, settings=settings, wake_up=wake_up)

    def expected(self) -> list[dict[str, Any]]:
        """The rows of plain left joins, in the order of the input."""
        rows = [row for batch in self.batches for row in batch.to_pylist()]
        for row in rows:
            values: list[int | None] = []
            for number, key in enumerate(self.keys):
                source = row[RECORDS.names[key.position]] if key.lookup is None else None
                values.append(value_of(source if key.lookup is None else values[key.lookup]))
                row[f"{number}_value"] = values[-1]
        return rows

    def segments(self) -> list[int]:
        """How many watermarks stand before each record."""
        watermarks, found, passed = EventTimeWatermarks(0, self.interval_ms), [], 0
        for batch in self.batches:
            times = batch.column("at").to_numpy()
            cuts = [] if self.interval_ms is None else watermarks.on_batch(times)
            found += [passed + sum(cut.rows <= row for cut in cuts) for row in range(len(times))]
            passed += len(cuts)
        return found


LOOKUP = LookupSettings()


def is_in_order(run: Run, rows: list[dict[str, Any]]) -> bool:
    """Whether the rows have the order of the mode, and none crosses a watermark."""
    segments = run.segments()
    left = [segments[row["number"]] for row in rows]
    groups: dict[object, list[int]] = {}
    group_of: dict[OutputMode, Callable[[dict[str, Any]], object]] = {
        OutputMode.ORDERED: lambda _: 0,
        OutputMode.KEY_ORDERED: lambda row: row["a"],
        OutputMode.UNORDERED: lambda row: row["number"],
    }
    for row in rows:
        groups.setdefault(group_of[run.mode](row), []).append(row["number"])
    return left == sorted(left) and all(each == sorted(each) for each in groups.values())


@pytest.mark.parametrize("part", range(5))
def test_no_loss_changes_the_output(url: str, part: int) -> None:
    """Each record leaves once, with the values of plain joins, in the order of its mode."""
    seeds = range(SEED + part * RUNS // 5, SEED + (part + 1) * RUNS // 5)
    wrong, lost = [], 0
    for seed in seeds:
        run = Run(seed, url)
        rows = run.rows()
        lost += run.losses.lost
        if sorted(rows, key=lambda row: row["number"]) != run.expected():
            wrong.append(f"{seed}: lost, doubled or wrong records")
        elif not is_in_order(run, rows):
            wrong.append(f"{seed}: records out of order")

    print(f"SIDELOOK_CHAOS_SEED={SEED}: {len(seeds)} runs, {lost} lost connections")  # noqa: T201 -- shown when it fails
    assert wrong == []
    assert lost > len(seeds)
