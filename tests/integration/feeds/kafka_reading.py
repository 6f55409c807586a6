"""A reader of all partitions of a changelog, without the retries of the source coordinator."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiokafka import AIOKafkaProducer

from lookup_core.changelog.change_decoder import Change, ChangeDecoder, RowChanges, TableChange
from service.connectors.kafka.changelog import KafkaChangelog, KafkaReader
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.ports.source import SplitPiece
from tests.service.connectors.kafka.keys_decoder import SCHEMA, KeysDecoder

PATIENCE_S = 60.0
POLL_INTERVAL_S = 0.01


@dataclass(slots=True)
class Reading:
    """A reader of assigned splits, and the changes that it has returned."""

    reader: KafkaReader
    changes: list[Change] = field(default_factory=list)
    latest: dict[str, SplitPiece] = field(default_factory=dict)  # {split id: its last piece}

    @property
    def keys(self) -> list[int]:
        """The changed keys, in the order of the changes."""
        rows = [each for each in self.changes if isinstance(each, RowChanges)]
        return [key for each in rows for key in each.keys["id"].to_pylist()]

    @property
    def counts(self) -> Counter[int]:
        """The number of changes of each key."""
        return Counter(self.keys)

    @property
    def flushes(self) -> list[str]:
        """The reason of each change of the whole table."""
        return [each.reason for each in self.changes if isinstance(each, TableChange)]

    @property
    def is_caught_up(self) -> bool:
        """Whether every split is caught up."""
        return bool(self.latest) and all(each.is_caught_up for each in self.latest.values())

    @property
    def silent_s(self) -> float:
        """The longest silence of a split, in seconds."""
        return max(each.silent_s for each in self.latest.values())

    @property
    def positions(self) -> Mapping[str, int]:
        """The position of each split."""
        return {split_id: piece.position for split_id, piece in self.latest.items()}

    async def read(self) -> Sequence[SplitPiece]:
        """Read once, within PATIENCE_S."""
        async with asyncio.timeout(PATIENCE_S):
            pieces = await self.reader.read()
        for piece in pieces:
            self.changes += piece.changes
            self.latest[piece.split_id] = piece
        return pieces

    async def until(self, is_so: Callable[[], object]) -> None:
        """Read until the condition is true, within PATIENCE_S."""
        began_s = time.monotonic()
        while not is_so():
            assert time.monotonic() - began_s < PATIENCE_S, (self.latest, self.changes)
            await self.read()


@asynccontextmanager
async def reading(
    settings: KafkaSettings,
    *,
    source: KafkaChangelog | None = None,
    positions: Mapping[str, int] | None = None,
) -> AsyncIterator[Reading]:
    """A reader of the splits that exist at its start."""
    source = source or changelog(settings)
    async with source.enumerator(SCHEMA) as enumerator, source.reader(SCHEMA) as reader:
        opened = Reading(reader)
        for split in await enumerator.discover():
            await reader.assign(split, position=(positions or {}).get(split.id))
            opened.latest[split.id] = SplitPiece(split.id, 0)
        yield opened


def changelog(settings: KafkaSettings, *, decoder: ChangeDecoder | None = None) -> KafkaChangelog:
    """A changelog whose messages have numbers as keys, unless a decoder is given."""
    return KafkaChangelog(settings, lambda _: decoder or KeysDecoder())


@asynccontextmanager
async def producing(
    brokers: str, *, transactional_id: str | None = None, **options: object
) -> AsyncIterator[AIOKafkaProducer]:
    """A producer; at the end, its broker may be down."""
    producer = AIOKafkaProducer(
        bootstrap_servers=brokers, transactional_id=transactional_id, **options
    )
    await producer.start()
    try:
        yield producer
    finally:
        with contextlib.suppress(Exception):  # the broker may be down
            async with asyncio.timeout(1.0):
                await producer.stop()


async def send_keys(
    brokers: str, topic: str, keys: Sequence[int], *, partition: int | None = None, **options: str
) -> None:
    """Write a change of each key, and wait for the broker's confirmation."""
    async with producing(brokers, **options) as producer:
        sent = [
            await producer.send(topic, key=str(key).encode(), value=b"{}", partition=partition)
            for key in keys
        ]
        await asyncio.gather(*sent)


async def eventually(is_so: Callable[[], object]) -> None:
    """Wait until the condition is true, within PATIENCE_S."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  # no event reports it
            await asyncio.sleep(POLL_INTERVAL_S)
