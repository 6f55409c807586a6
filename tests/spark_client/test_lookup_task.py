"""What runs in the Python worker, without Spark: over a real socket to a sidecar in memory."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import InvalidRequest, SidecarUnreachable
from lookup_core.protocol import frames
from spark_client.fake_sidecar import FakeDimension, FakeSidecar
from spark_client.lookup_settings import JoinKeys, LookupSettings
from spark_client.lookup_task import LookupFunctionTask, LookupJoinTask, LookupTarget, origin
from spark_client.transport.connections import Address
from tests.spark_client.fake_server import FakeServer
from tests.spark_client.partition import DIMENSIONS, batch

COLUMNS = pa.schema({"name": pa.utf8()})


@pytest.fixture
def sidecar() -> FakeSidecar:
    """A sidecar that answers at once."""
    return FakeSidecar(DIMENSIONS)


@pytest.fixture
def address(sidecar: FakeSidecar, tmp_path: Path) -> Iterator[Address]:
    """Where it listens."""
    with FakeServer(sidecar).at(tmp_path / "s.sock") as url:
        yield Address(url, None, 5.0)


def join_task(address: Address) -> LookupJoinTask:
    """A join on the first column."""
    target = LookupTarget(
        address, "customers", COLUMNS, JoinKeys(("id",), ("id",)), (0,), LookupSettings()
    )
    return LookupJoinTask(target, prefix="c_", status_column=None)


def test_partition_is_enriched(address: Address, sidecar: FakeSidecar) -> None:
    """Batches in, batches out, over one channel that is given back at the end."""
    outputs = list(join_task(address)(iter([batch(1, 9), batch(3)])))
    list(join_task(address)(iter([batch(3)])))  # behind the first on the same connection

    names = [name for output in outputs for name in output.column("c_name").to_pylist()]
    assert names == ["Ann", None, "Ćirić"]
    received = [type(frame) for frame in sidecar.memory.received]
    assert received[:5] == [frames.Open, frames.Lookup, frames.Lookup, frames.Close, frames.Open]


def test_empty_batches_need_no_sidecar() -> None:
    """Without records nothing is connected, and the schema is that of any other output."""
    nowhere = Address("unix:///nowhere", None, 0.01)

    (output,) = join_task(nowhere)(iter([batch()]))

    assert output.num_rows == 0
    assert output.schema.names == ["id", "n", "c_name"]
    assert list(join_task(nowhere)(iter([]))) == []


def test_empty_batch_has_the_common_schema(address: Address) -> None:
    """All output batches of a partition have one schema, whatever is in them."""
    outputs = list(join_task(address)(iter([batch(), batch(1), batch(), batch(9)])))

    assert len({output.schema for output in outputs}) == 1
    assert sum(output.num_rows for output in outputs) == 2


def test_missing_sidecar_fails_the_task() -> None:
    """After the connect timeout the task ends with the path that it looked for."""
    with pytest.raises(SidecarUnreachable, match="unix:///nowhere: no such socket"):
        list(join_task(Address("unix:///nowhere", None, 0.01))(iter([batch(1)])))


def test_early_end_closes_the_channel(address: Address, sidecar: FakeSidecar) -> None:
    """When the consumer leaves, so does the channel."""
    outputs = join_task(address)(iter([batch(1), batch(2)]))

    next(outputs)
    outputs.close()  # type: ignore[attr-defined]  # it is a generator
    list(join_task(address)(iter([batch(3)])))  # behind it on the same connection

    assert frames.Close(1) in sidecar.memory.received


def test_task_travels_by_value(address: Address) -> None:
    """A pickled task is the same task."""
    task = join_task(address)

    assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301 -- our own bytes


def test_function_gives_structs(address: Address) -> None:
    """One struct for each key, in order; NULL where there is no row; no keys, no structs."""
    task = LookupFunctionTask(address, "customers", COLUMNS, LookupSettings())
    keys = [pa.array([2, 9, 1]), pa.array([], pa.int64()), pa.array([1])]

    structs = [array.to_pylist() for array in task(iter(keys))]

    assert [each for array in structs for each in array] == [
        {"name": None},
        None,
        {"name": "Ann"},
        {"name": "Ann"},
    ]


def test_functions_take_composite_keys(tmp_path: Path) -> None:
    """Several arguments come as a tuple of arrays."""
    table = pa.table({"a": [1], "b": ["x"], "name": ["one"]})
    sidecar = FakeSidecar({"d": FakeDimension(table, ("a", "b"))})
    with FakeServer(sidecar).at(tmp_path / "s.sock") as url:
        task = LookupFunctionTask(Address(url), "d", COLUMNS, LookupSettings())
        structs = pa.chunked_array(task(iter([(pa.array([1, 1]), pa.array(["x", "y"]))])))

    assert structs.to_pylist() == [{"name": "one"}, None]


def test_origin_outside_a_task_is_the_driver() -> None:
    """People see who asks."""
    assert origin() == "driver"


HISTORY = pa.table(
    {
        "id": pa.array([1, 1], pa.int64()),
        "name": ["Ann", "Ann II"],
        "since": pa.array([None, 5], pa.timestamp("us")),
    }
)
VERSIONED = FakeDimension(HISTORY, ("id",), versions=VersionColumns("since"))
TIMED = pa.record_batch({"id": [1, 1], "ts": pa.array([4, 5], pa.timestamp("us"))})


def timed_task(
    url: str, as_of: int | None, *, columns: pa.Schema = COLUMNS, dimension: str = "history"
) -> LookupJoinTask:
    """A join as of the records' column of this number."""
    keys, settings = JoinKeys(("id",), ("id",)), LookupSettings(as_of=as_of)
    target = LookupTarget(Address(url), dimension, columns, keys, (0,), settings)
    return LookupJoinTask(target, "", None)


def test_versions_are_picked_and_cast(tmp_path: Path) -> None:
    """Each record has the version of its time, in the types that were promised."""
    promised = pa.schema({"name": pa.large_utf8()})
    with FakeServer(FakeSidecar({"history": VERSIONED})).at(tmp_path / "s.sock") as url:
        (output,) = timed_task(url, 1, columns=promised)(iter([TIMED]))

    assert output.schema == pa.schema([*TIMED.schema, *promised])
    assert output.column("name").to_pylist() == ["Ann", "Ann II"]


def test_task_refuses_what_the_driver_could_not_see(tmp_path: Path) -> None:
    """With a schema the driver asks nobody: the task finds out, and gives its channel back."""
    sidecar = FakeSidecar({"history": VERSIONED, **DIMENSIONS})
    with FakeServer(sidecar).at(tmp_path / "s.sock") as url:
        with pytest.raises(InvalidRequest, match="as_of"):
            list(timed_task(url, None)(iter([TIMED])))
        with pytest.raises(InvalidRequest, match="no versions"):
            list(timed_task(url, 1, dimension="customers")(iter([TIMED])))
        list(timed_task(url, 1)(iter([TIMED])))  # behind them on the same connection

    assert frames.Close(1) in sidecar.memory.received
