"""What the driver learns from a sidecar."""

from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import InvalidRequest, SidecarUnreachable
from lookup_core.protocol import frames
from spark_client.fake_sidecar import FakeDimension, FakeSidecar
from spark_client.schemas import ANY_KEY, described_columns, described_key
from spark_client.transport.connections import Address
from tests.spark_client.fake_server import FakeServer
from tests.spark_client.partition import DIMENSIONS

KEY = pa.schema({"id": pa.int64()})
COLUMNS = pa.schema({"name": pa.utf8(), "tier": pa.int32()})


def test_columns_are_described(tmp_path: Path) -> None:
    """All of them or those asked for, with or without a key; the channel is given back."""
    sidecar = FakeSidecar(DIMENSIONS)

    with FakeServer(sidecar).at(tmp_path / "s.sock") as url:
        everything = described_columns(Address(url), "customers", columns=None, key=KEY)
        tier = described_columns(Address(url), "customers", columns=["tier"], key=ANY_KEY)

    assert everything == COLUMNS
    assert tier == pa.schema([COLUMNS.field("tier")])
    opened = [each for each in sidecar.memory.received if isinstance(each, frames.Open)]
    closed = [each for each in sidecar.memory.received if isinstance(each, frames.Close)]
    assert (len(opened), len(closed)) == (2, 2)


def test_key_is_described(tmp_path: Path) -> None:
    """The names of its columns, in the dimension's order; the channel is given back."""
    sidecar = FakeSidecar(DIMENSIONS)

    with FakeServer(sidecar).at(tmp_path / "s.sock") as url:
        assert described_key(Address(url), "customers") == ("id",)

    closed = [each for each in sidecar.memory.received if isinstance(each, frames.Close)]
    assert len(closed) == 1


def test_versions_are_described_as_single_values(tmp_path: Path) -> None:
    """As of a time a column is what a record gets; only those asked for, whatever comes along."""
    since = pa.timestamp("us")
    table = pa.table({"id": [1], "name": ["Ann"], "since": pa.array([0], since)})
    history = FakeDimension(table, ("id",), versions=VersionColumns("since"))

    with FakeServer(FakeSidecar({"d": history})).at(tmp_path / "s.sock") as url:
        everything, name = (
            described_columns(Address(url), "d", columns=columns, key=KEY, is_as_of=True)
            for columns in (None, ["name"])
        )
        with pytest.raises(InvalidRequest, match="as_of"):
            described_columns(Address(url), "d", columns=None, key=KEY)

    assert everything == pa.schema({"name": pa.utf8(), "since": since})
    assert name == pa.schema({"name": pa.utf8()})


def test_unknown_dimension_shows_on_the_driver(tmp_path: Path) -> None:
    """What the sidecar does not know is an error before any task starts."""
    server = FakeServer(FakeSidecar({}))

    with server.at(tmp_path / "s.sock") as url, pytest.raises(InvalidRequest, match="unknown_dim"):
        described_columns(Address(url), "customers", columns=None, key=KEY)


def test_driver_without_sidecar_is_told_what_to_do(tmp_path: Path) -> None:
    """The error names the path, and the way to do without a sidecar here."""
    address = Address(f"unix://{tmp_path}/none.sock", None, 0.01)

    with pytest.raises(SidecarUnreachable, match=r"none\.sock: no such socket") as caught:
        described_columns(address, "customers", columns=None, key=KEY)

    assert "schema=" in caught.value.__notes__[0]
    with pytest.raises(SidecarUnreachable) as caught:
        described_key(address, "customers")
    assert "on=" in caught.value.__notes__[0]
