"""Builders of the client's tests: a dimension, batches, channels, and one partition's operator."""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.dimension_schema import VersionColumns
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.as_of import AsOfPlan, single_columns, version_pick
from spark_client.fake_sidecar import URL, FakeDimension, FakeSidecar
from spark_client.lookup_operator import LookupOperator, LookupPlan
from spark_client.lookup_settings import LookupSettings
from spark_client.output_columns import column_casts, joined_output
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connection import Connection, Timing
from spark_client.transport.interface import LookupChannel

CUSTOMERS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "name": pa.array(["Ann", None, "Ćirić", ""]),
        "tier": pa.array([1, 2, None, 4], pa.int32()),
    }
)
HISTORY = pa.table(
    {
        "id": pa.array([1, 1], pa.int64()),
        "name": ["Ann", "Ann II"],
        "since": pa.array([None, 5], pa.timestamp("us")),
    }
)
COMPOSITE = pa.table({"a": [1, 2], "b": ["x", "y"], "name": ["one", "two"]})
DIMENSIONS = {"customers": FakeDimension(CUSTOMERS, ("id",))}
ALL_DIMENSIONS = {
    **DIMENSIONS,
    "history": FakeDimension(HISTORY, ("id",), versions=VersionColumns("since")),
    "composite": FakeDimension(COMPOSITE, ("a", "b")),
}
KEY = pa.schema({"id": pa.int64()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)
NO_PAUSE = Timing(connect_timeout_s=5.0, pause=lambda _: None)
WAIT_S = 10.0


def connection_to(sidecar: FakeSidecar, timing: Timing = NO_PAUSE) -> Connection:
    """A connection of this process."""
    return Connection(sidecar.connect, url=URL, timing=timing)


def batch(*ids: int | None) -> pa.RecordBatch:
    """Records with a key and a number."""
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "n": pa.array(range(len(ids)), pa.int64())}
    )


def look_up(channel: ChannelSession, question: int, *ids: int) -> None:
    """Look up keys, with a deadline that does not pass."""
    keys = pa.record_batch([pa.array(ids, pa.int64())], KEY)
    channel.look_up(SentKeys(QuestionId(question), keys, deadline_s=1e9))


def answered(channel: ChannelSession, count: int) -> dict[int, list[int]]:
    """The sorted positions in the answers to `count` keys, by question."""
    found: dict[int, list[int]] = {}
    while sum(map(len, found.values())) < count:
        answers = channel.answers(WAIT_S)
        assert answers, "no answer came"
        for each in answers:
            found.setdefault(each.question, []).extend(each.answer.positions.tolist())
    return {question: sorted(positions) for question, positions in found.items()}


def is_served(channel: ChannelSession) -> bool:
    """Whether a lookup is answered; earlier frames of the connection are dispatched then."""
    look_up(channel, 99, 1)
    return answered(channel, 1) == {99: [0]}


def result(
    sequence: int, *positions: int, is_last: bool = False, channel: int = 1
) -> frames.Result:
    """A RESULT without rows."""
    answer = rowless_answer(np.array(positions, np.int32), Outcome.MISSING)
    payload = encode_batch(answer_batch(answer))
    return frames.Result(channel, sequence, is_last, has_rows=False, payload=payload)


def received(sidecar: FakeSidecar, kind: type[Frame]) -> list[Any]:
    """The frames of one kind that a sidecar has received."""
    return [frame for frame in sidecar.memory.received if isinstance(frame, kind)]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition through the operator, over a connection to a sidecar in memory."""

    sidecar: FakeSidecar
    settings: LookupSettings = field(default_factory=LookupSettings)
    dimension: str = "customers"
    columns: tuple[str, ...] = ("name", "tier")
    keys: tuple[str, ...] = ("id",)
    status_column: str | None = None
    connection: Connection | None = None  # None: a new one
    clock: Callable[[], float] = time.monotonic

    def operator(self, records: pa.Schema) -> LookupOperator:
        """The operator with its channel."""
        key = pa.schema([records.field(name) for name in self.keys])
        is_as_of = self.settings.as_of is not None
        request = ChannelRequest(self.dimension, self.columns, "a test", key, is_as_of)
        channel = (self.connection or connection_to(self.sidecar)).open(request)
        casts = column_casts(channel.columns, channel.columns, dimension=self.dimension)
        as_of = self._as_of(channel)
        output = joined_output(
            records,
            channel.columns if as_of is None else as_of.pick.columns,
            prefix="",
            status_column=self.status_column,
            is_inner=self.settings.is_inner,
        )
        positions = tuple(records.names.index(name) for name in self.keys)
        plan = LookupPlan(self.dimension, positions, key, casts, output, self.settings, as_of)
        return LookupOperator(plan, channel, clock=self.clock)

    def _as_of(self, channel: LookupChannel) -> AsOfPlan | None:
        if self.settings.as_of is None or channel.versions is None:
            return None
        wanted = list(single_columns(channel.columns))[: len(self.columns)]
        pick = version_pick(channel.columns, pa.schema(wanted), channel.versions)
        return AsOfPlan(self.settings.as_of, pick)

    def run(self, batches: Sequence[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
        """All output batches; the channel is closed in any case."""
        operator = self.operator(batches[0].schema)
        try:
            for each in batches:
                yield from operator.take_in(each)
            yield from operator.drain()
        finally:
            operator.close()
            self.sidecar.crash()  # ends the connection's thread

    def rows(self, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
        """All output rows."""
        outputs = [each for each in batches if each.num_rows]
        return [row for output in self.run(outputs) for row in output.to_pylist()]
