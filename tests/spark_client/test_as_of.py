"""Lookups as of a time: what the client asks of a dimension, and what its records get."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest, ProtocolViolation
from lookup_core.operator.as_of import NEVER_US, VersionPick
from lookup_core.protocol import frames
from spark_client.as_of import (
    AsOfPlan,
    check_versions,
    list_columns,
    single_columns,
    version_pick,
)
from spark_client.fake_sidecar import Behaviour, FakeDimension, FakeSidecar
from spark_client.lookup_settings import LookupSettings, OutputMode
from tests.spark_client.partition import Partition

TIME = pa.timestamp("us", "UTC")
HISTORY = pa.table(
    {
        "id": pa.array([1, 1, 2], pa.int64()),
        "name": ["Ann II", "Ann", "Bob"],
        "since": pa.array([10, None, 5], TIME),
        "until": pa.array([None, 8, 7], TIME),
    }
)
VERSIONS = VersionColumns("since", "until")
DIMENSION = FakeDimension(HISTORY, ("id",), versions=VERSIONS)
COLUMNS = pa.schema({"name": pa.utf8()})
SENT = pa.schema({"name": pa.list_(pa.utf8()), "since": pa.list_(TIME), "until": pa.list_(TIME)})
RECORDS = [(1, 7), (1, 8), (1, 10), (2, 6), (2, None), (9, 6), (None, 6), (1, -5)]
NAMES = ["Ann", None, "Ann II", "Bob", None, None, None, "Ann"]


def records(rows: list[tuple[int | None, int | None]] = RECORDS) -> pa.RecordBatch:
    """Numbered records with a key and a time, in microseconds."""
    ids, times = zip(*rows, strict=True)
    columns = [pa.array(ids, pa.int64()), pa.array(times, TIME), pa.array(range(len(rows)))]
    return pa.record_batch(columns, ["id", "ts", "n"])


def enriched(sidecar: FakeSidecar, settings: LookupSettings, **options: Any) -> list[Any]:  # noqa: ANN401
    """What the records become."""
    partition = Partition(sidecar, settings, "history", ("name",), **options)
    return partition.rows(records())


@pytest.mark.parametrize("mode", OutputMode)
@pytest.mark.parametrize("capacity", [2, 100])
@pytest.mark.parametrize("part_size", [None, 1])
def test_records_get_the_version_of_their_time(
    mode: OutputMode, capacity: int, part_size: int | None
) -> None:
    """Before, between and behind versions, without a time or a row, whatever the parts are."""
    sidecar = FakeSidecar({"history": DIMENSION}, Behaviour(part_size=part_size, seed=1))

    rows = enriched(sidecar, LookupSettings(mode, capacity, as_of=1))

    found = [(each["n"], each["name"]) for each in rows]
    assert sorted(found) == list(enumerate(NAMES))
    assert mode is not OutputMode.ORDERED or found == list(enumerate(NAMES))


def test_inner_join_drops_records_without_a_version() -> None:
    """As those without a row, which their status says they are."""
    sidecar = FakeSidecar({"history": DIMENSION})

    inner = enriched(sidecar, LookupSettings(is_inner=True, as_of=1))
    left = enriched(sidecar, LookupSettings(as_of=1), status_column="_s")

    assert [row["name"] for row in inner] == [name for name in NAMES if name]
    assert [row["_s"]["outcome"] == "missing" for row in left] == [not name for name in NAMES]


def test_keys_travel_once_with_the_largest_time() -> None:
    """Records of one key at different times are one question, with the latest of the times."""
    sidecar = FakeSidecar({"history": replace(DIMENSION, waits=True)})

    enriched(sidecar, LookupSettings(as_of=1))

    (opening,) = (each for each in sidecar.memory.received if isinstance(each, frames.Open))
    (lookup,) = (each for each in sidecar.memory.received if isinstance(each, frames.Lookup))
    assert (opening.columns, opening.is_as_of) == (("name",), True)
    assert lookup.event_time_ms == 0  # 10 microseconds
    assert pa.ipc.read_record_batch(
        pa.py_buffer(lookup.payload), pa.schema({"id": pa.int64()})
    ).column(0).to_pylist() == [1, 2, 9, None]


def test_times_are_those_of_the_records() -> None:
    """Dates and timestamps; none for NULL."""
    pick = VersionPick(COLUMNS, 1, 2)

    days = pa.record_batch([pa.array([1, None], pa.date32())], ["ts"])

    assert AsOfPlan(1, pick).of(records([(1, 7), (1, None)])).times_us.tolist() == [7, NEVER_US]
    assert AsOfPlan(0, pick).of(days).times_us.tolist() == [86_400_000_000, NEVER_US]


def test_either_knows_of_times_or_neither() -> None:
    """A time for a dimension without versions is an error, and versions without a time are one."""
    check_versions(VERSIONS, is_as_of=True, dimension="d")
    check_versions(None, is_as_of=False, dimension="d")

    with pytest.raises(InvalidRequest, match="'d' has no versions") as none:
        check_versions(None, is_as_of=True, dimension="d")
    with pytest.raises(InvalidRequest, match=r"\(since, until\).*lookup_join\(as_of=…\)"):
        check_versions(VERSIONS, is_as_of=False, dimension="d")
    assert none.value.code is ErrorCode.BAD_REQUEST


def test_lists_become_single_columns() -> None:
    """Back and forth; what comes beside what was asked for stays as it is sent."""
    promised = pa.schema({"name": pa.large_utf8()})

    assert single_columns(SENT) == pa.schema({"name": pa.utf8(), "since": TIME, "until": TIME})
    assert list_columns(promised, SENT) == SENT.set(0, pa.field("name", pa.list_(pa.large_utf8())))
    assert version_pick(SENT, COLUMNS, VERSIONS) == VersionPick(COLUMNS, 1, 2)
    assert version_pick(SENT, COLUMNS, VersionColumns("until")) == VersionPick(COLUMNS, 2, None)


@pytest.mark.parametrize(
    ("sent", "versions"),
    [
        (SENT, VersionColumns("nope")),
        (SENT, VersionColumns("name")),
        (pa.schema({"since": TIME}), VersionColumns("since")),
    ],
)
def test_versions_without_times_are_refused(sent: pa.Schema, versions: VersionColumns) -> None:
    """A sidecar that names columns which are no lists of times is not believed."""
    with pytest.raises(ProtocolViolation):
        version_pick(sent, COLUMNS, versions)
