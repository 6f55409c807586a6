"""Channels with options of their own, from the client through a sidecar to PostgreSQL."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connection import ChannelSession
from spark_client.transport.connections import Connections, SidecarAddress
from tests.integration.sidecars import postgres_sidecar
from tests.service.engine.running import in_words
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarProcess

PATIENCE_S = 20.0
KEY = pa.schema({"id": pa.int64()})
PATIENT = LookupOptions(max_retries=100, retry_delay_ms=100)


@pytest.fixture
def sidecar(folder: Path, database: Database) -> Iterator[SidecarProcess]:
    """A sidecar with `customers`, read through a cache."""
    database.execute("CREATE TABLE customers (id int8 PRIMARY KEY, name text)")
    cache = {"ttl": "1h", "negative_ttl": "1h"}
    customers = {"timeout": "20s", "cache": cache}
    sidecar = postgres_sidecar(folder, database.dsn(), {"customers": customers})
    with sidecar.running():
        yield sidecar


class Channel:
    """A channel of a client; the connection is its own."""

    def __init__(self, sidecar: SidecarProcess, options: LookupOptions = NO_OPTIONS) -> None:
        request = ChannelRequest("customers", ("name",), "a test", KEY, options=options)
        address = SidecarAddress(f"unix://{sidecar.socket}")
        self._session: ChannelSession = Connections().to(address).open(request)

    def ask(self, key: int) -> None:
        """Look a key up; `answer` has the answer."""
        keys = pa.record_batch([pa.array([key], pa.int64())], schema=KEY)
        self._session.look_up(SentKeys(RunId(1), keys, time.monotonic() + PATIENCE_S))

    def answer(self, key: int | None = None) -> str:
        """The answer to this key, or to the one that was looked up before."""
        if key is not None:
            self.ask(key)
        (answer,) = self._session.answers(PATIENCE_S)
        return in_words([answer.answer])[0]

    def close(self) -> None:
        """Close the channel."""
        self._session.close()


@pytest.mark.real_path
def test_late_row_is_waited_for(sidecar: SidecarProcess, database: Database) -> None:
    """A channel with retries gets a row that is inserted later; others get `missing` before."""
    with closing(Channel(sidecar)) as plain, closing(Channel(sidecar, PATIENT)) as patient:
        assert plain.answer(9) == "missing"  # cached for an hour
        patient.ask(9)
        assert plain.answer(9) == "missing"
        database.insert("customers", [(9, "Cleo")])

        assert patient.answer() == "fetched Cleo"
        assert plain.answer(9) == "hit Cleo"
