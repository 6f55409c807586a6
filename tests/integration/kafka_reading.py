"""A changelog as a test reads it: all its partitions, until something is so.

Stands for the coordinator, without its care: it does not open what has failed.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer

from lookup_core.changelog.change_decoder import Change, ChangeDecoder, RowChanges, TableChange
from service.connectors.kafka.changelog import KafkaChangelog, KafkaEnumerator
from service.connectors.kafka.reader import KafkaReader
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.ports.source import SplitPiece
from tests.service.connectors.kafka.keys_decoder import SCHEMA, KeysDecoder

PATIENCE_S = 60.0
POLL_INTERVAL_S = 0.01


@dataclass(slots=True)
class Reading:
    """A reader, the splits that it was given, and all that it has told."""

    enumerator: KafkaEnumerator
    reader: KafkaReader
    changes: list[Change] = field(default_factory=list)
    latest: dict[str, SplitPiece] = field(default_factory=dict)  # {split id: its last piece}

    @property
    def keys(self) -> list[int]:
        """The keys that have changed, in the order in which they were told."""
        rows = [each for each in self.changes if isinstance(each, RowChanges)]
        return [key for each in rows for key in each.keys["id"].to_pylist()]

    @property
    def counts(self) -> Counter[int]:
        """How often each key has changed."""
        return Counter(self.keys)

    @property
    def flushes(self) -> list[str]:
        """Why any row may have changed, each time."""
        return [each.reason for each in self.changes if isinstance(each, TableChange)]

    @property
    def is_caught_up(self) -> bool:
        """Whether every split says so."""
        return bool(self.latest) and all(each.is_caught_up for each in self.latest.values())

    @property
    def silent_s(self) -> float:
        """The longest silence of a split."""
        return max(each.silent_s for each in self.latest.values())

    @property
    def positions(self) -> Mapping[str, int]:
        """How far each split is read."""
        return {split_id: piece.position for split_id, piece in self.latest.items()}

    async def discover(self, positions: Mapping[str, int] | None = None) -> list[str]:
        """Assign the splits that are new; their ids."""
        found = await self.enumerator.discover()
        new = [split for split in found if split.id not in self.latest]
        for split in new:
            await self.reader.assign(split, position=(positions or {}).get(split.id))
            self.latest[split.id] = SplitPiece(split.id, 0)
        return [split.id for split in new]

    async def read(self) -> Sequence[SplitPiece]:
        """Read once; a read that hangs fails the test."""
        async with asyncio.timeout(PATIENCE_S):
            pieces = await self.reader.read()
        for piece in pieces:
            self.changes += piece.changes
            self.latest[piece.split_id] = piece
        return pieces

    async def until(self, is_so: Callable[[], object]) -> float:
        """Read until it is so; the seconds that it took."""
        began_s = time.monotonic()
        while not is_so():
            assert time.monotonic() - began_s < PATIENCE_S, (self.latest, self.changes)
            await self.read()
        return time.monotonic() - began_s


@asynccontextmanager
async def reading(
    settings: KafkaSettings,
    *,
    source: KafkaChangelog | None = None,
    positions: Mapping[str, int] | None = None,
) -> AsyncIterator[Reading]:
    """A reader of all splits that there are at its beginning."""
    source = source or changelog(settings)
    async with source.enumerator(SCHEMA) as enumerator, source.reader(SCHEMA) as reader:
        opened = Reading(enumerator, reader)
        await opened.discover(positions)
        yield opened


def changelog(settings: KafkaSettings, *, decoder: ChangeDecoder | None = None) -> KafkaChangelog:
    """A changelog whose messages have numbers as keys, unless there is a decoder for others."""
    return KafkaChangelog(settings, lambda _: decoder or KeysDecoder())


@asynccontextmanager
async def producing(
    brokers: str, *, transactional_id: str | None = None, **options: object
) -> AsyncIterator[AIOKafkaProducer]:
    """A producer; it may be gone with its broker in the end."""
    producer = AIOKafkaProducer(
        bootstrap_servers=brokers, transactional_id=transactional_id, **options
    )
    await producer.start()
    try:
        yield producer
    finally:
        with contextlib.suppress(Exception):  # its broker may be dead; nothing is lost by it
            async with asyncio.timeout(1.0):
                await producer.stop()


async def send_keys(
    brokers: str, topic: str, keys: Sequence[int], *, partition: int | None = None, **options: str
) -> None:
    """Write a change of each key, and wait until the broker has them all."""
    async with producing(brokers, **options) as producer:
        sent = [
            await producer.send(topic, key=str(key).encode(), value=b"{}", partition=partition)
            for key in keys
        ]
        await asyncio.gather(*sent)


async def eventually(is_so: Callable[[], object]) -> None:
    """Wait until it is so; what makes it so runs in this loop, or elsewhere."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  # nothing of it tells when it changes
            await asyncio.sleep(POLL_INTERVAL_S)
