"""The operator of one partition, against a sidecar in memory."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lookup_core.errors import ErrorCode, LookupFailed
from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.fake_sidecar import Behaviour, FakeDimension, FakeSidecar
from spark_client.lookup_settings import (
    FailurePolicy,
    LookupSettings,
    OutputMode,
    WatermarkSettings,
)
from spark_client.transport.channel_session import IDLE_AFTER_S
from spark_client.transport.connection import Connection, Timing
from tests.spark_client.partition import CUSTOMERS, DIMENSIONS, Partition, batch, connection_to

KEY = pa.schema({"id": pa.int64()})
FAILING = {"customers": FakeDimension(CUSTOMERS, ("id",), {(3,): ErrorCode.BACKEND_UNAVAILABLE})}


def lookups(sidecar: FakeSidecar) -> list[frames.Lookup]:
    """Those that a sidecar got."""
    return [each for each in sidecar.memory.received if isinstance(each, frames.Lookup)]


def names(rows: list[dict[str, Any]]) -> list[tuple[int | None, str | None]]:
    """Keys and names of rows."""
    return [(row["id"], row["name"]) for row in rows]


def test_records_leave_with_their_rows() -> None:
    """Each record gets the columns of its key; no row, and no key, give nulls."""
    rows = Partition(FakeSidecar(DIMENSIONS)).rows(batch(1, 9, None, 3), batch(1))

    assert rows == [
        {"id": 1, "n": 0, "name": "Ann", "tier": 1},
        {"id": 9, "n": 1, "name": None, "tier": None},
        {"id": None, "n": 2, "name": None, "tier": None},
        {"id": 3, "n": 3, "name": "Ćirić", "tier": None},
        {"id": 1, "n": 0, "name": "Ann", "tier": 1},
    ]


def test_distinct_keys_travel_once() -> None:
    """A batch with the same keys again and again asks for each of them once."""
    sidecar = FakeSidecar(DIMENSIONS)

    Partition(sidecar).rows(batch(*[1, 2] * 500))

    (lookup,) = (each for each in sidecar.memory.received if isinstance(each, frames.Lookup))
    key = pa.schema({"id": pa.int64()})
    assert pa.ipc.read_record_batch(pa.py_buffer(lookup.payload), key).column(0).to_pylist() == [
        1,
        2,
    ]


def test_inner_drops_what_found_nothing() -> None:
    """Records without a row do not leave; batches that become empty leave no trace."""
    partition = Partition(FakeSidecar(DIMENSIONS), LookupSettings(is_inner=True))

    outputs = list(partition.run([batch(1, 9), batch(9, 9), batch(2)]))

    assert [output.column("id").to_pylist() for output in outputs] == [[1], [2]]


def test_no_columns_is_a_semi_join() -> None:
    """A lookup without columns still tells which records have a row."""
    settings = LookupSettings(is_inner=True)

    rows = Partition(FakeSidecar(DIMENSIONS), settings, columns=()).rows(batch(1, 9, 4))

    assert rows == [{"id": 1, "n": 0}, {"id": 4, "n": 2}]


@pytest.mark.parametrize("mode", OutputMode)
def test_capacity_bounds_what_is_asked(mode: OutputMode) -> None:
    """Never more records are unanswered than the capacity allows, however long the input."""
    sidecar = FakeSidecar(DIMENSIONS, Behaviour(part_size=1, seed=1))
    partition = Partition(sidecar, LookupSettings(mode=mode, capacity=4))

    rows = partition.rows(*(batch(1, 2, 3, 4, 9) for _ in range(5)))

    lookups = [each for each in sidecar.memory.received if isinstance(each, frames.Lookup)]
    assert len(lookups) >= 25 // 4
    assert len(rows) == 25
    assert Counter(names(rows)) == {
        (1, "Ann"): 5,
        (2, None): 5,
        (3, "Ćirić"): 5,
        (4, ""): 5,
        (9, None): 5,
    }


def test_silent_sidecar_fails_the_task() -> None:
    """Without an answer the client itself ends the wait, and says how many for which dimension."""
    sidecar = FakeSidecar(DIMENSIONS, Behaviour(is_silent=True))
    partition = Partition(sidecar, LookupSettings(timeout_s=0.02))

    with pytest.raises(LookupFailed, match="3 lookups of 'customers' timed out") as caught:
        partition.rows(batch(1, 2, 2))

    assert caught.value.code is ErrorCode.TIMEOUT
    assert isinstance(sidecar.memory.received[-2], frames.Cancel)
    assert sidecar.memory.received[-1] == frames.Close(1)


def test_timeouts_may_give_nulls() -> None:
    """With the other policy the records leave with nulls, and their status says why."""
    settings = LookupSettings(timeout_s=0.02, on_timeout=FailurePolicy.NULL)
    sidecar = FakeSidecar(DIMENSIONS, Behaviour(is_silent=True))

    rows = Partition(sidecar, settings, status_column="_s").rows(batch(1), batch(2))

    status = {"outcome": "timeout", "age_ms": None, "error": "timeout"}
    assert rows == [
        {"id": 1, "n": 0, "name": None, "tier": None, "_s": status},
        {"id": 2, "n": 0, "name": None, "tier": None, "_s": status},
    ]


def test_errors_fail_the_task() -> None:
    """A key that cannot be looked up fails the task with its code, and never names the key."""
    with pytest.raises(LookupFailed) as caught:
        Partition(FakeSidecar(FAILING)).rows(batch(1, 3, 3))

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
    assert caught.value.detail == (
        "2 lookups of 'customers' failed"
        " (backend_unavailable: the database cannot be reached); on_error is 'fail'"
    )


def test_errors_may_give_nulls() -> None:
    """With the other policy only the records with that key have nulls."""
    settings = LookupSettings(on_error=FailurePolicy.NULL)

    rows = Partition(FakeSidecar(FAILING), settings, status_column="_s").rows(batch(1, 3))

    assert names(rows) == [(1, "Ann"), (3, None)]
    assert rows[1]["_s"] == {"outcome": "error", "age_ms": None, "error": "backend_unavailable"}


def test_watermarks_reach_the_sidecar() -> None:
    """One for each batch, behind its lookups, and the greatest of all at the end."""
    sidecar = FakeSidecar(DIMENSIONS)
    watermarks = WatermarkSettings(column=1, delay_ms=10, interval_ms=None)

    Partition(sidecar, LookupSettings(watermarks=watermarks)).rows(batch(1, 2), batch(*range(9)))

    told = [each for each in sidecar.memory.received if isinstance(each, frames.Watermark)]
    assert [each.watermark_ms for each in told] == [1 - 11, 8 - 11, MAX_WATERMARK_MS]
    kinds = [type(each) for each in sidecar.memory.received]
    assert kinds == [
        frames.Open,
        *(frames.Lookup, frames.Watermark) * 2,
        frames.Watermark,
        frames.Close,
    ]


def times_sent(dimension: FakeDimension, *times_ms: int | None) -> list[int | None]:
    """Those of the lookups for records with these event times, two at once."""
    sidecar = FakeSidecar({"customers": dimension})
    plan = LookupSettings(capacity=2, watermarks=WatermarkSettings(1, 0, None))
    columns = [pa.array(range(len(times_ms))), pa.array(times_ms, pa.int64())]

    Partition(sidecar, plan).rows(pa.record_batch(columns, ["id", "ts"]))

    return [each.event_time_ms for each in lookups(sidecar)]


def test_lookups_have_the_latest_event_time() -> None:
    """Of the records that they are for, where the sidecar may wait for it; none of NULLs."""
    waiting = FakeDimension(CUSTOMERS, ("id",), waits=True)

    assert times_sent(waiting, 5, 9, 7, None, None, None) == [9, 7, None]
    assert times_sent(replace(waiting, waits=False), 5, 9, 7, None) == [None, None]


def test_no_event_time_is_no_time() -> None:
    """Whoever does not say which column has it sends none."""
    sidecar = FakeSidecar({"customers": FakeDimension(CUSTOMERS, ("id",), waits=True)})

    Partition(sidecar).rows(batch(1, 2))

    assert [each.event_time_ms for each in lookups(sidecar)] == [None]


@pytest.mark.parametrize("capacity", [1, 2, 3, 100])
def test_watermarks_never_overtake_lookups(capacity: int) -> None:
    """However the batch is taken in, a watermark is told behind all that it stands behind."""
    sidecar = FakeSidecar(DIMENSIONS)
    watermarks = WatermarkSettings(column=1, delay_ms=0, interval_ms=2)

    plan = LookupSettings(capacity=capacity, watermarks=watermarks)

    Partition(sidecar, plan).rows(batch(*range(7)))  # each row is its own event time

    asked, told = 0, []
    for frame in sidecar.memory.received:
        if isinstance(frame, frames.Lookup):
            asked += decode_batch(frame.payload, KEY).num_rows
        elif isinstance(frame, frames.Watermark):
            told.append((asked, frame.watermark_ms))
    assert told[-2:] == [(7, 5), (7, MAX_WATERMARK_MS)]
    assert all(watermark_ms + 2 <= rows for rows, watermark_ms in told[:-1])


def silent_input(connection: Connection, now_s: list[float]) -> Iterator[pa.RecordBatch]:
    """A batch after a long wait, another one at once, and a long wait before a third."""
    let_pass(connection, now_s)
    yield batch(1)
    yield batch(2)
    let_pass(connection, now_s)
    yield batch(3)
    let_pass(connection, now_s)


def let_pass(connection: Connection, now_s: list[float]) -> None:
    """Enough time to be idle, and a channel opened, so that the connection's thread saw it."""
    now_s[0] += IDLE_AFTER_S
    connection.open(ChannelRequest("customers", (), "another", KEY)).close()


def test_only_waiting_for_input_is_idleness() -> None:
    """The channel is idle while its input is silent, not while it has records at hand."""
    sidecar, now_s = FakeSidecar(DIMENSIONS), [0.0]
    connection = connection_to(sidecar, Timing(clock=lambda: now_s[0]))
    partition = Partition(sidecar, connection=connection, clock=lambda: now_s[0])
    operator = partition.operator(batch(1).schema)
    batches = silent_input(connection, now_s)

    first = operator.next_of(batches)
    assert first is not None
    list(operator.take_in(first))
    let_pass(connection, now_s)
    pooled = operator.next_of(batches)
    told = [each.is_idle for each in sidecar.memory.received if isinstance(each, frames.Status)]
    operator.close()

    assert told == [True, False]
    assert first.column("id").to_pylist() == [1]
    assert pooled is not None
    assert pooled.column("id").to_pylist() == [2, 3]


def test_large_answers_leave_in_pieces() -> None:
    """Output batches are bounded in bytes, so that one hot row does not multiply beyond it."""
    table = pa.table({"id": pa.array([1], pa.int64()), "name": ["x" * 1000]})
    partition = Partition(
        FakeSidecar({"customers": FakeDimension(table, ("id",))}),
        LookupSettings(max_bytes=10_000),
        columns=("name",),
    )

    outputs = list(partition.run([batch(*[1] * 100)]))

    assert sum(output.num_rows for output in outputs) == 100
    assert all(output.num_rows <= 10 for output in outputs)


def test_early_end_gives_the_channel_back() -> None:
    """When nobody wants the rest, what is unanswered is cancelled and the channel closed."""
    sidecar = FakeSidecar(DIMENSIONS, Behaviour(part_size=1, seed=3))
    outputs = Partition(sidecar, LookupSettings(capacity=2)).run([batch(1, 2, 3, 4, 1, 2)])

    next(outputs)
    outputs.close()

    assert sidecar.memory.received[-1] == frames.Close(1)


def test_crashes_are_invisible() -> None:
    """A sidecar that crashes between all batches changes nothing in the output."""
    sidecar = FakeSidecar(DIMENSIONS)
    partition = Partition(sidecar)
    operator = partition.operator(batch(1).schema)
    rows = []
    for number in range(20):
        sidecar.crash()
        for output in operator.take_in(batch(number, 1)):
            rows += output.to_pylist()
    for output in operator.drain():
        rows += output.to_pylist()
    operator.close()

    assert [row["id"] for row in rows] == [key for number in range(20) for key in (number, 1)]
    assert [row["name"] for row in rows[1::2]] == ["Ann"] * 20


texts = st.text(max_size=4)
keys = st.one_of(st.none(), texts)
batches_of_keys = st.lists(
    st.lists(st.tuples(keys, st.integers(0, 3), st.integers(0, 50)), min_size=1, max_size=12),
    min_size=1,
    max_size=5,
)
table_rows = st.dictionaries(st.tuples(texts, st.integers(0, 3)), st.one_of(st.none(), texts))


def joined(
    batches: list[list[tuple[str | None, int, int]]], rows: dict[tuple[str, int], str | None]
) -> list[dict[str, Any]]:
    """A plain left join, record by record."""
    records = [record for each in batches for record in each]
    return [
        {
            "text": text,
            "number": number,
            "time": time,
            "value": None if text is None else rows.get((text, number)),
        }
        for text, number, time in records
    ]


@settings(max_examples=100)
@given(
    batches=batches_of_keys,
    rows=table_rows,
    mode=st.sampled_from(OutputMode),
    behaviour=st.builds(
        Behaviour,
        credit_records=st.integers(1, 20),
        part_size=st.one_of(st.none(), st.integers(1, 3)),
        seed=st.one_of(st.none(), st.integers(0, 9)),
    ),
    capacity=st.integers(1, 30),
    interval_ms=st.one_of(st.none(), st.integers(1, 20)),
)
def test_output_is_that_of_a_plain_join(
    *,
    batches: list[list[tuple[str | None, int, int]]],
    rows: dict[tuple[str, int], str | None],
    mode: OutputMode,
    behaviour: Behaviour,
    capacity: int,
    interval_ms: int | None,
) -> None:
    """Whatever the keys, the sizes and the sidecar: the same rows, in the order of the mode."""
    table = pa.table(
        {
            "text": pa.array([text for text, _ in rows], pa.utf8()),
            "number": pa.array([number for _, number in rows], pa.int64()),
            "value": pa.array(list(rows.values()), pa.utf8()),
        }
    )
    partition = Partition(
        FakeSidecar({"d": FakeDimension(table, ("text", "number"))}, behaviour),
        LookupSettings(mode, capacity, watermarks=WatermarkSettings(2, 5, interval_ms)),
        dimension="d",
        columns=("value",),
        keys=("text", "number"),
    )
    types = pa.schema({"text": pa.utf8(), "number": pa.int64(), "time": pa.int64()})

    found = partition.rows(
        *(
            pa.RecordBatch.from_pylist(
                [dict(zip(types.names, record, strict=True)) for record in each], types
            )
            for each in batches
        )
    )

    expected = joined(batches, rows)
    if mode is OutputMode.ORDERED:
        assert found == expected
    else:
        assert Counter(map(repr, found)) == Counter(map(repr, expected))
        assert_segments_are_kept(batches, found)
    if mode is OutputMode.KEY_ORDERED:
        assert by_key(found) == by_key(expected)


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[str | None, int], list[dict[str, Any]]]:
    """The records of each key, in order."""
    found: dict[tuple[str | None, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["text"], row["number"]), []).append(row)
    return found


def assert_segments_are_kept(
    batches: list[list[tuple[str | None, int, int]]], found: list[dict[str, Any]]
) -> None:
    """Each batch ends with a watermark, so none of its records leaves behind those of the next."""
    start = 0
    for each in batches:
        leaving = found[start : start + len(each)]
        assert Counter((row["text"], row["number"], row["time"]) for row in leaving) == Counter(
            each
        )
        start += len(each)
