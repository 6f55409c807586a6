"""A connector that says several times a second that it lives, between what it has to tell.

In a thread of its own. Nothing overtakes: a heartbeat is written when all before it has been.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from tests.integration.debezium_messages import Message, heartbeat
from tests.integration.kafka_reading import PATIENCE_S, producing
from tests.integration.told_table import ToldTable

INTERVAL_S = 0.2
_RETRY_S = 0.1


class TellingConnector:
    """Tells of one table; its heartbeats go to a topic of their own."""

    def __init__(self, table: ToldTable, heartbeat_topic: str) -> None:
        self._table = table
        self._heartbeat_topic = heartbeat_topic
        self._untold: deque[Message] = deque()
        self._is_paused = threading.Event()
        self._is_over = threading.Event()
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Self:
        """Begin; returns after the first heartbeat."""
        self._thread.start()
        assert self._has_begun.wait(PATIENCE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End, when the message under way is written."""
        self._is_over.set()
        self._thread.join()

    def tell(self, message: Message) -> None:
        """Write this as soon as possible, and before the next heartbeat."""
        self._untold.append(message)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile, like a connector that hangs."""
        self._is_paused.set()
        try:
            yield
        finally:
            self._is_paused.clear()

    async def _run(self) -> None:
        async with producing(self._table.brokers) as producer:
            while not self._is_over.is_set():
                if not self._is_paused.is_set():
                    await self._beat(producer)
                await asyncio.sleep(INTERVAL_S)

    async def _beat(self, producer: AIOKafkaProducer) -> None:
        while self._untold:
            await self._write(producer, self._table.name, self._untold.popleft())
        await self._write(producer, self._heartbeat_topic, heartbeat())
        self._has_begun.set()

    async def _write(self, producer: AIOKafkaProducer, topic: str, message: Message) -> None:
        while not self._is_over.is_set():
            try:
                await producer.send_and_wait(topic, message.value, key=message.key)
            except KafkaError:
                await asyncio.sleep(_RETRY_S)
            else:
                return
