"""What the tests of the client share: one Spark session, and sidecars in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_client.testing.fake_server import MemoryServer
from spark_client.transport.connection import Connection
from spark_client.transport.connections import SidecarAddress
from tests.spark_client.builders import ALL_DIMENSIONS, connection_to
from tests.spark_client.memory_transport import ReachableSidecar
from tests.spark_session import spark_session

__all__ = ["spark_session"]


@pytest.fixture
def sidecar() -> ReachableSidecar:
    """A sidecar that answers at once; it has keys of one and two columns, and versions."""
    return ReachableSidecar(ALL_DIMENSIONS)


@pytest.fixture
def connection(sidecar: ReachableSidecar) -> Connection:
    """A connection to it."""
    return connection_to(sidecar)


@pytest.fixture
def address(sidecar: ReachableSidecar, tmp_path: Path) -> Iterator[SidecarAddress]:
    """Its address."""
    with MemoryServer(sidecar).at(tmp_path / "s.sock") as url:
        yield SidecarAddress(url, None, 5.0)
