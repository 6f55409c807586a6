"""The tasks of the Python worker, without Spark: over a socket to a sidecar in memory."""

import pyarrow as pa
import pytest

from lookup_core.errors import InvalidRequest
from lookup_core.protocol import frames
from lookup_core.protocol.frames import TraceParent
from spark_client.lookup_settings import JoinKeys, KeyColumn, LookupSettings, PassSettings
from spark_client.transport.connections import SidecarAddress
from spark_client.worker.lookup_task import (
    LookupFunctionTask,
    LookupJoinTask,
    LookupPass,
    LookupPassTask,
    LookupTarget,
    task_origin,
    task_trace,
)
from spark_client.worker.output_columns import AddedPart
from tests.spark_client.builders import batch
from tests.spark_client.memory_transport import ReachableSidecar

COLUMNS = pa.schema({"name": pa.utf8()})
NOWHERE = SidecarAddress("unix:///nowhere", None, 0.01)
TIMED = pa.record_batch({"id": [1, 1], "ts": pa.array([4, 5], pa.timestamp("us"))})


def join_task(
    address: SidecarAddress,
    dimension: str = "customers",
    *,
    as_of: int | None = None,
    columns: pa.Schema = COLUMNS,
) -> LookupJoinTask:
    """A join on the first column."""
    keys, settings = JoinKeys(("id",), ("id",)), LookupSettings(as_of=as_of)
    part = AddedPart(columns, prefix="c_")
    target = LookupTarget(address, dimension, keys, (KeyColumn(0),), settings, part)
    return LookupJoinTask(LookupPass([target], PassSettings(pooled_rows=1)))


def function_task(address: SidecarAddress, dimension: str) -> LookupFunctionTask:
    """A function of its key."""
    return LookupFunctionTask(address, dimension, COLUMNS, LookupSettings(), PassSettings())


def test_empty_partition_needs_no_sidecar() -> None:
    """Without records there is no connection, and the schema is that of any output."""
    (output,) = join_task(NOWHERE)(iter([batch()]))

    assert (output.num_rows, output.schema.names) == (0, ["id", "n", "c_name"])
    assert list(join_task(NOWHERE)(iter([]))) == []
    assert list(function_task(NOWHERE, "d")(iter([]))) == []


@pytest.mark.parametrize(
    ("dimension", "row"), [("customers", None), ("composite", {"name": "unknown"})]
)
def test_null_without_a_type_is_a_missing_key(
    address: SidecarAddress, dimension: str, row: dict[str, str] | None
) -> None:
    """A key column that only has NULLs of no type gives the default row, or NULL."""
    function = function_task(address, dimension)
    keys = (pa.array([1, 2]), pa.nulls(2))

    found = list(function(iter([keys, keys])))

    assert [each.to_pylist() for each in found] == [[row, row], [row, row]]
    assert {each.type for each in found} == {pa.struct(list(COLUMNS))}


def test_bytes_that_are_not_utf8_find_no_row(address: SidecarAddress) -> None:
    """A text of Spark that is not UTF-8 is a key without a row, and harms no other key."""
    texts = pa.array([b"\xff", b"x", None, b"a\xc3", b"\xff"]).view(pa.utf8())
    function = function_task(address, "composite")
    keys = [(pa.array([1] * len(texts)), column) for column in (texts, texts.cast(pa.large_utf8()))]

    found = list(function(iter(keys[:1]))) + list(function(iter(keys[1:])))

    assert [each.to_pylist() for each in found] == [[None, {"name": "one"}, None, None, None]] * 2


def test_array_is_refused_as_a_key() -> None:
    """An argument that is an array or a struct is refused before it is sent."""
    function = function_task(NOWHERE, "d")
    refusals = {
        r"argument 0 is array<bigint>, which is no key type; pass a single value": pa.array([[1]]),
        r"argument 0 is struct<a bigint>, which is no key type; pass its fields": pa.array(
            [{"a": 1}]
        ),
    }

    for refusal, keys in refusals.items():
        with pytest.raises(InvalidRequest, match=rf'dimension "d": {refusal}'):
            list(function(iter([keys])))


def test_early_end_closes_the_channel(address: SidecarAddress, sidecar: ReachableSidecar) -> None:
    """If the consumer stops, joins and functions close their channels."""
    function = function_task(address, "customers")
    for outputs in (
        join_task(address)(iter([batch(1), batch(2)])),
        function(iter([pa.array([1]), pa.array([2])])),
    ):
        next(outputs)
        outputs.close()  # type: ignore[attr-defined]  # they are generators
    list(join_task(address)(iter([batch(3)])))  # behind them on the same connection

    assert {frames.Close(1), frames.Close(2)} < set(sidecar.memory.received)


@pytest.mark.parametrize(
    ("source", "as_of", "wants_default"), [(None, None, False), (0, None, True), (0, 1, False)]
)
def test_later_lookups_request_the_default_row(
    source: int | None,
    as_of: int | None,
    wants_default: bool,  # noqa: FBT001 -- a parameter
) -> None:
    """A key from another lookup may be NULL, which the task answers itself; versions have none."""
    keys, column = JoinKeys(("id",), ("id",)), KeyColumn(0, source)
    part, settings = AddedPart(COLUMNS), LookupSettings(as_of=as_of)
    target = LookupTarget(NOWHERE, "customers", keys, (column,), settings, part)

    assert target.request(pa.schema({"id": pa.int64()})).wants_default is wants_default


def pass_of(address: SidecarAddress) -> LookupPass:
    """A lookup by the third column, and one as of the second, of records with event times."""
    keys, columns = JoinKeys(("id",), ("id",)), (KeyColumn(3),)
    settings = (LookupSettings(), LookupSettings(as_of=1))
    targets = [
        LookupTarget(address, name, keys, columns, each, AddedPart(COLUMNS))
        for name, each in zip(("customers", "history"), settings, strict=True)
    ]
    return LookupPass(targets, PassSettings(event_time=1))


@pytest.mark.parametrize(
    "lengths", [[3, 4, 2], [0, 5, 0, 0, 1, 0], [1] * 9, [0], [], [30, 1], [0, 0]]
)
def test_functions_keep_the_sizes_of_batches(address: SidecarAddress, lengths: list[int]) -> None:
    """Spark may pair each output with a batch of its input, so it has as many rows."""
    rows = iter(range(100))
    keys = [pa.array([next(rows) for _ in range(length)], pa.int64()) for length in lengths]
    times = [key.cast(pa.timestamp("us")) for key in keys]

    structs = list(function_task(address, "customers")(iter(keys)))
    passes = LookupPassTask(pass_of(address).over_inputs())(iter(zip(times, keys, strict=True)))

    names = {1: "Ann", 3: "Ćirić", 4: ""}
    assert [len(each) for each in structs] == lengths
    assert [[row["0"] for row in each.to_pylist()] for each in passes] == [
        [names.get(number) for number in each.to_pylist()] for each in keys
    ]


def test_versions_are_picked_and_cast(address: SidecarAddress) -> None:
    """Each record has the version of its time, in the types of the output."""
    wide = pa.schema({"name": pa.large_utf8()})

    (output,) = join_task(address, "history", as_of=1, columns=wide)(iter([TIMED]))

    assert output.schema == pa.schema([*TIMED.schema, pa.field("c_name", pa.large_utf8())])
    assert output.column("c_name").to_pylist() == ["Ann", "Ann II"]


def test_task_refuses_what_the_driver_did_not_see(
    address: SidecarAddress, sidecar: ReachableSidecar
) -> None:
    """With `schema=` only the task sees the dimension; it closes the channel that it refuses."""
    with pytest.raises(InvalidRequest, match=r"\(since\).*lookup_join\(as_of=…\)"):
        list(join_task(address, "history")(iter([TIMED])))
    with pytest.raises(InvalidRequest, match="no versions"):
        list(join_task(address, as_of=1)(iter([TIMED])))
    list(join_task(address, "history", as_of=1)(iter([TIMED])))  # on the same connection

    assert frames.Close(1) in sidecar.memory.received


def test_driver_has_no_task() -> None:
    """Outside a task the origin is the driver, and the trace is the given one or none."""
    given = TraceParent(f"00-{'a' * 32}-{'b' * 16}-01")

    assert (task_origin(), task_trace(given), task_trace(None)) == ("driver", given, None)
