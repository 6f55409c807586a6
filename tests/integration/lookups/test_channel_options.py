"""Channels with options of their own, from the client through a sidecar to PostgreSQL."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.channel_session import ChannelSession
from spark_client.transport.connections import Connections, SidecarAddress
from tests.integration.sidecars import postgres_sidecar
from tests.service.engine.running import in_words
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarProcess

PATIENCE_S = 20.0
KEY = pa.schema({"id": pa.int64()})
READ_NOW = LookupOptions(max_age_ms=0)
PATIENT = LookupOptions(max_retries=100, retry_delay_ms=100)
NAMED = LookupOptions(max_retries=100, retry_delay_ms=100, retry_if="name")


@pytest.fixture
def sidecar(folder: Path, database: Database) -> Iterator[SidecarProcess]:
    """A sidecar with `customers`, read through a cache, and `all_customers`, in full mode."""
    database.execute("CREATE TABLE customers (id int8 PRIMARY KEY, name text, tier int4)")
    database.insert("customers", [(7, "Ada", 1), (8, None, 2)])
    cache = {"ttl": "1h", "negative_ttl": "1h"}
    dimensions = {
        "customers": {"timeout": "20s", "cache": cache},
        "all_customers": {"table": "customers", "cache": {"mode": "full"}},
    }
    sidecar = postgres_sidecar(folder, database.dsn(), dimensions)
    with sidecar.running():
        yield sidecar


class Channel:
    """A channel of a client; the connection is its own."""

    def __init__(
        self,
        sidecar: SidecarProcess,
        options: LookupOptions = NO_OPTIONS,
        *,
        dimension: str = "customers",
        columns: tuple[str, ...] = ("name",),
    ) -> None:
        request = ChannelRequest(dimension, columns, "a test", KEY, options=options)
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


def test_maximal_age_reads_the_table(sidecar: SidecarProcess, database: Database) -> None:
    """A channel with a maximal age gets the row of the table, and so do later lookups of all."""
    with closing(Channel(sidecar)) as plain, closing(Channel(sidecar, READ_NOW)) as fresh:
        assert plain.answer(7) == "fetched Ada"
        database.execute("UPDATE customers SET name = 'Ada Smith' WHERE id = 7")
        assert plain.answer(7) == "hit Ada"

        assert fresh.answer(7) == "fetched Ada Smith"
        assert plain.answer(7) == "hit Ada Smith"
        database.execute("DELETE FROM customers WHERE id = 7")
        assert fresh.answer(7) == "missing"
        assert plain.answer(7) == "missing"


@pytest.mark.real_path
def test_late_row_is_waited_for(sidecar: SidecarProcess, database: Database) -> None:
    """A channel with retries gets a row that is inserted later; others get `missing` before."""
    with closing(Channel(sidecar)) as plain, closing(Channel(sidecar, PATIENT)) as patient:
        assert plain.answer(9) == "missing"  # cached for an hour
        patient.ask(9)
        assert plain.answer(9) == "missing"
        database.insert("customers", [(9, "Cleo", 3)])

        assert patient.answer() == "fetched Cleo"
        assert plain.answer(9) == "hit Cleo"


def test_late_value_is_waited_for(sidecar: SidecarProcess, database: Database) -> None:
    """With `retry_if`, a row is read again until its column is set; others get it with NULL."""
    named = Channel(sidecar, NAMED, columns=("tier",))
    with closing(Channel(sidecar)) as plain, closing(named):
        assert plain.answer(8) == "fetched"
        named.ask(8)
        assert plain.answer(8) == "hit"
        database.execute("UPDATE customers SET name = 'Bert' WHERE id = 8")

        assert len(named._session.answers(PATIENCE_S)) == 1
        assert plain.answer(8) == "hit Bert"


def test_full_table_refuses_options(sidecar: SidecarProcess) -> None:
    """A dimension in full cache mode refuses a maximal age; the error has the remedy."""
    with pytest.raises(InvalidRequest, match=r"max_age: cache\.mode is full") as caught:
        Channel(sidecar, READ_NOW, dimension="all_customers")

    assert caught.value.code is ErrorCode.BAD_REQUEST
