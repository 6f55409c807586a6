"""Channels to a dimension with versions: what they are told, and what their lookups carry."""

import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch, result_schema
from lookup_core.settings import DimensionSettings
from service.connectors.memory.backend import FakeBackend
from service.connectors.ports.several_rows import RowVersions
from service.engine.dimension import Dimension
from service.engine.gathering import Submitted
from tests.service.stream.streaming import (
    Peer,
    Setting,
    Streaming,
    lookup_frame,
    open_frame,
    streaming,
)

DAYS = [dt.date(2013, 1, 1), dt.date(2013, 6, 1)]
DATES = pa.list_(pa.date32())
SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8(), "since": pa.date32()})
)
ROWS = pa.table({"id": pa.array([7, 7]), "name": ["Ada", "Ida"], "since": DAYS[::-1]})
VERSIONS = VersionColumns("since")


class Witness(Dimension):
    """Notes the event times that it is asked with."""

    def __init__(self, settings: DimensionSettings, backend: RowVersions) -> None:
        super().__init__(settings, backend)
        self.event_times_ms: list[int | None] = []

    def submit(self, *args: Any, **options: Any) -> Submitted:  # noqa: ANN401 -- as they are
        """As any dimension."""
        self.event_times_ms.append(options["event_time_ms"])
        return super().submit(*args, **options)


@dataclass(frozen=True, slots=True)
class Versioned:
    """Makes dimensions with versions."""

    witnesses: list[Witness] = field(default_factory=list)

    def make(self, settings: DimensionSettings, store: FakeBackend) -> Dimension:
        """A dimension over a store, which gets other rows."""
        store.replace(ROWS, SCHEMA)
        self.witnesses.append(Witness(settings, RowVersions(store, VERSIONS)))
        return self.witnesses[-1]


@pytest.fixture
def made() -> Versioned:
    """What makes the dimensions."""
    return Versioned()


@pytest.fixture
async def service(made: Versioned) -> AsyncIterator[Streaming]:
    """A service whose customers have versions."""
    async with streaming(Setting(make=made.make)) as running:
        yield running


async def opened(service: Streaming, *columns: str, is_as_of: bool = True) -> tuple[Peer, Any]:
    """A peer, and what it gets when it opens channel 1 for these columns."""
    peer = await service.connect()
    await peer.greet()
    await peer.send(replace(open_frame(columns=columns), is_as_of=is_as_of))
    return peer, await peer.frame()


async def test_times_come_behind_what_was_asked(service: Streaming) -> None:
    """As of a time the columns that say when a version is valid are added, and named."""
    _, told = await opened(service, "name")

    assert told.columns == pa.schema({"name": pa.list_(pa.utf8()), "since": DATES})
    assert told.versions == VERSIONS


async def test_lists_come_without_a_time(service: Streaming) -> None:
    """Who does not ask as of a time gets the lists that it asks for, and what they are."""
    _, told = await opened(service, "name", is_as_of=False)

    assert told.columns == pa.schema({"name": pa.list_(pa.utf8())})
    assert told.versions == VERSIONS


async def test_all_versions_are_answered(service: Streaming) -> None:
    """Oldest first, with the times when they begin; the client picks."""
    peer, told = await opened(service, "name")

    await peer.send(lookup_frame(1, 7))
    frame = await peer.frame()
    result = frame if isinstance(frame, frames.Result) else await peer.receive(frames.Result)

    rows = decode_batch(result.payload, result_schema(told.columns)).to_pylist()
    assert [(each["name"], each["since"]) for each in rows] == [(["Ida", "Ada"], DAYS)]


async def test_event_time_reaches_the_dimension(service: Streaming, made: Versioned) -> None:
    """The largest time of a lookup's records goes where it can be waited for."""
    peer, _ = await opened(service, "name")

    for sequence, event_time_ms in enumerate([5, None], 1):
        await peer.send(replace(lookup_frame(sequence, 7), event_time_ms=event_time_ms))
        while not isinstance(await peer.frame(), frames.Result):
            pass

    assert made.witnesses[0].event_times_ms == [5, None]


async def test_dimension_without_versions_has_no_time() -> None:
    """A channel as of a time to any other dimension is refused."""
    async with streaming() as service:
        _, told = await opened(service, "name")

    assert isinstance(told, frames.Failure)
    assert (told.code, told.detail) == (
        "bad_request",
        "the dimension has no versions to look up as of a time; leave as_of out",
    )
