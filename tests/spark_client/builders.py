"""Builders of the client's tests: a dimension, batches, channels, and one partition's operator."""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome, rowless_answer
from lookup_core.dimension_schema import VersionColumns
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import answer_batch, encode_batch
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from lookup_core.protocol.frames import Frame
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.lookup_settings import JoinType, KeyColumn, LookupSettings, PassSettings
from spark_client.testing.served_dimension import ServedDimension
from spark_client.transport.connection import ChannelSession, Connection, Timing
from spark_client.worker.as_of import AsOfPlan, single_columns, version_pick
from spark_client.worker.input_thread import InputThread, WakeUp
from spark_client.worker.lookup_operator import LookupOperator
from spark_client.worker.lookup_plan import LookupPlan
from spark_client.worker.output_columns import AddedPart, column_casts, joined_output
from tests.spark_client.memory_transport import URL, ReachableSidecar

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
DIMENSIONS = {"customers": ServedDimension(CUSTOMERS, ("id",))}
ALL_DIMENSIONS = {
    **DIMENSIONS,
    "history": ServedDimension(HISTORY, ("id",), versions=VersionColumns("since")),
    "composite": ServedDimension(COMPOSITE, ("a", "b"), default={"name": "unknown"}),
}
KEY = pa.schema({"id": pa.int64()})
REQUEST = ChannelRequest("customers", ("name",), "a test", KEY)
NO_PAUSE = Timing(connect_timeout_s=5.0, pause=lambda _: None)
WAIT_S = 10.0


def connection_to(sidecar: ReachableSidecar, timing: Timing = NO_PAUSE) -> Connection:
    """A connection of this process."""
    return Connection(sidecar.connect, url=URL, timing=timing)


def batch(*ids: int | None) -> pa.RecordBatch:
    """Records with a key and a number."""
    return pa.record_batch(
        {"id": pa.array(ids, pa.int64()), "n": pa.array(range(len(ids)), pa.int64())}
    )


def look_up(channel: ChannelSession, run: int, *ids: int) -> None:
    """Look up keys, with a deadline that does not pass."""
    keys = pa.record_batch([pa.array(ids, pa.int64())], KEY)
    channel.look_up(SentKeys(RunId(run), keys, deadline_s=1e9))


def answered(channel: ChannelSession, count: int) -> dict[int, list[int]]:
    """The sorted positions in the answers to `count` keys, by run."""
    found: dict[int, list[int]] = {}
    while sum(map(len, found.values())) < count:
        answers = channel.answers(WAIT_S)
        assert answers, "no answer came"
        for each in answers:
            found.setdefault(each.run, []).extend(each.answer.positions.tolist())
    return {run: sorted(positions) for run, positions in found.items()}


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


def received(sidecar: ReachableSidecar, kind: type[Frame]) -> list[Any]:
    """The frames of one kind that a sidecar has received."""
    return [frame for frame in sidecar.memory.received if isinstance(frame, kind)]


class PulledInput(InputThread):
    """An input without a thread: each batch is read when the operator takes it."""

    def __init__(self, batches: Iterable[pa.RecordBatch | None]) -> None:
        """None: there is no batch yet."""
        self._pulled = iter(batches)
        self._is_over = False

    def take_batch(self) -> pa.RecordBatch | None:
        """See `InputThread`."""
        try:
            return next(self._pulled)
        except StopIteration:
            self._is_over = True
            return None

    @property
    def is_over(self) -> bool:
        """See `InputThread`."""
        return self._is_over


class SteppedWakeUp(WakeUp):
    """Nothing wakes it: each wait takes its whole time at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def clock(self) -> float:
        """The time that has been waited."""
        return self.now_s

    def wait_and_clear(self, timeout_s: float) -> None:
        """See `WakeUp`."""
        self.now_s += timeout_s


@dataclass(frozen=True, slots=True)
class Lookup:
    """One lookup of a partition."""

    dimension: str = "customers"
    columns: tuple[str, ...] = ("name", "tier")
    keys: tuple[str, ...] = ("id",)
    settings: LookupSettings = field(default_factory=LookupSettings)
    how: JoinType = JoinType.LEFT
    prefix: str = ""
    status_column: str | None = None
    expands: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition through the operator, over a connection to a sidecar in memory.

    The key of a lookup has columns of the records or, by the names in the output, of earlier ones.
    """

    sidecar: ReachableSidecar
    settings: PassSettings = field(default_factory=PassSettings)
    lookups: tuple[Lookup, ...] = (Lookup(),)
    connection: Connection | None = None  # None: a new one
    wake_up: WakeUp = field(default_factory=WakeUp)
    clock: Callable[[], float] = time.monotonic

    def operator(self, records: pa.Schema) -> LookupOperator:
        """The operator with its channels."""
        connection = self.connection or connection_to(self.sidecar)
        known = {name: (KeyColumn(at), records.field(at)) for at, name in enumerate(records.names)}
        plans, channels, parts = [], [], []
        for number, lookup in enumerate(self.lookups):
            key = pa.schema([pa.field(name, known[name][1].type) for name in lookup.keys])
            request = ChannelRequest(
                *(lookup.dimension, lookup.columns, "a test", key),
                is_as_of=lookup.settings.as_of is not None,
                wants_default=lookup.settings.wants_default
                or any(known[name][0].lookup is not None for name in lookup.keys),
            )
            session = connection.begin(request, wake=self.wake_up.set)
            session.wait_until_open()
            channel = session.channel
            casts = column_casts(channel.columns, channel.columns, dimension=lookup.dimension)
            places = tuple(known[name][0] for name in lookup.keys)
            as_of = _as_of(lookup, channel)
            plan = LookupPlan(
                *(lookup.dimension, places, key, casts, lookup.settings, as_of),
                expands=lookup.expands,
            )
            if channel.default is not None:
                plan = replace(plan, default=plan.rows(channel.default))
            columns = single_columns(plan.columns) if lookup.expands else plan.columns
            part = AddedPart(
                columns, lookup.how, lookup.prefix, lookup.status_column, lookup.expands
            )
            for at, column in enumerate(plan.columns):
                known[lookup.prefix + column.name] = (KeyColumn(at, number), column)
            plans.append(plan)
            channels.append(session)
            parts.append(part)
        output = joined_output(records, parts)
        return LookupOperator(
            plans, channels, output, settings=self.settings, wake_up=self.wake_up, clock=self.clock
        )

    def run(self, batches: Sequence[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
        """All output batches; the channels are closed in any case."""
        operator = self.operator(batches[0].schema)
        try:
            yield from operator.enriched(PulledInput(batches))
        finally:
            operator.close()
            self.sidecar.crash()  # ends the connection's thread

    def rows(self, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
        """All output rows."""
        outputs = [each for each in batches if each.num_rows]
        return [row for output in self.run(outputs) for row in output.to_pylist()]


def _as_of(lookup: Lookup, channel: ClientChannel) -> AsOfPlan | None:
    if lookup.settings.as_of is None or channel.versions is None:
        return None
    wanted = list(single_columns(channel.columns))[: len(lookup.columns)]
    pick = version_pick(channel.columns, pa.schema(wanted), channel.versions)
    return AsOfPlan(lookup.settings.as_of, pick)
