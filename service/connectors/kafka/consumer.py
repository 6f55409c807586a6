"""Kafka consumer of assigned partitions, without a group, and its cluster connections."""

import asyncio
import random
import time
from collections.abc import Awaitable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import create_conn
from aiokafka.errors import (
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest

from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.leader_epochs import (
    BatchHeader,
    EpochEnd,
    EpochEndRequest,
    LogEpochs,
    batches_of,
)
from service.connectors.kafka.metadata import TopicMetadata, TopicMetadataRequest
from service.connectors.kafka.settings import RETRY_BACKOFF_MS, KafkaSettings

log = structlog.get_logger()

_PAUSE_S = 0.1  # between metadata requests, which aiokafka repeats while a leader is unknown
_CLOSE_TIMEOUT_S = 1.0
_COMMITTED = 1  # isolation level
# Bounds of one response; a single larger batch is sent nevertheless.
_PARTITION_FETCH_BYTES = 2**20
_FETCH_BYTES = 8 * 2**20


class KafkaClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """The cluster connections of one consumer, with metadata by topic id."""

    def __init__(self, settings: KafkaSettings, epochs: LogEpochs | None = None) -> None:
        super().__init__(
            bootstrap_servers=list(settings.brokers),
            metadata_max_age_ms=round(settings.discovery_interval_s * 1000),
            retry_backoff_ms=RETRY_BACKOFF_MS,
            **settings.connection_options(),
        )
        self.topic_ids: dict[str, bytes] = {}  # existing topics, at the last refresh
        self.epochs = epochs or LogEpochs()  # the changelog's partitions
        self._own_topics = settings.topics
        self._settings = settings

    async def bootstrap(self) -> None:
        """Connect to any broker; raises KafkaError or OSError with the cause."""
        try:
            await super().bootstrap()
        except KafkaConnectionError:
            if self._settings.security_protocol != "PLAINTEXT":
                await self._fail_with_cause()
            raise

    async def refresh(self) -> None:
        """Read the metadata of our topics; raises KafkaError if no broker responds."""
        brokers = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(brokers)
        failure: Exception = KafkaConnectionError("no brokers are known")
        for node_id in brokers:
            try:
                response = await self.send(node_id, TopicMetadataRequest(self._own_topics))
            except KafkaError as error:
                failure = error
            else:
                metadata = TopicMetadata.read(response)
                self.topic_ids = dict(metadata.topic_ids)
                for number, epoch in metadata.leader_epochs(self._settings.topic).items():
                    address = TopicPartition(self._settings.topic, number)
                    self.epochs.note_leader(address, epoch)
                self.cluster.update_metadata(metadata.of_cluster)
                return
        raise failure

    async def send(
        self, node_id: int, request: object, *, group: int = ConnectionGroup.DEFAULT
    ) -> Any:  # noqa: ANN401  # a response, of a library without types
        """Send a request; notes the leader epochs of fetched batches."""
        is_fetch = isinstance(request, FetchRequest)
        try:
            response = await super().send(node_id, request, group=group)
        except KafkaError:
            if is_fetch:
                self.epochs.require_verification()  # the broker may have restarted
            raise
        if is_fetch:
            self._note_batches(response)
        return response

    def _note_batches(self, response: Any) -> None:  # noqa: ANN401  # as above
        for topic, partitions in response.topics:
            for number, error_code, *_, batches in (
                partitions if topic == self._settings.topic else ()
            ):
                address = TopicPartition(topic, number)
                if error_code:
                    self.epochs.require_verification(address)
                else:
                    self.epochs.add_batches(address, batches or b"")

    async def epoch_end(self, address: TopicPartition, epoch: int) -> int:
        """The end of an epoch in the log of the partition's leader, negative if it has none.

        Raises KafkaError, or NotImplementedError for a broker that cannot answer.
        """
        response = await self.send(self._leader(address), EpochEndRequest(address, epoch))
        ((_, ((error_code, _, _, end),)),) = response.topics
        if error_code:
            self.force_metadata_update()
            raise for_code(error_code)(address)
        return int(end)

    async def batch_at(self, address: TopicPartition, offset: int) -> BatchHeader | None:
        """The batch of an offset, or the next one; None at the ends of the log.

        Raises KafkaError.
        """
        of_topic = (address.topic, [(address.partition, offset, 1)])  # at least one whole batch
        request = FetchRequest(0, 0, 1, _COMMITTED, [of_topic], rack_id="")
        # Not by `send`, which notes batches that were read.
        response = await super().send(self._leader(address), request)
        ((_, ((_, error_code, *_, content),)),) = response.topics
        if error_code == OffsetOutOfRangeError.errno:
            return None
        if error_code:
            self.force_metadata_update()
            raise for_code(error_code)(address)
        return next(batches_of(content or b""), None)

    def _leader(self, address: TopicPartition) -> int:
        leader: int | None = self.cluster.leader_for_partition(address)
        if leader is None or leader < 0:
            raise LeaderNotAvailableError(address)
        return leader

    async def _fail_with_cause(self) -> None:
        # `bootstrap` of aiokafka only logs why a broker refuses the connection.
        host, port, _ = self.hosts[0]
        connection = await create_conn(host, port, **self._settings.connection_options())
        connection.close()

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: object) -> bool:
        # Called by aiokafka's own task, with the assigned topics.
        assert cluster_metadata is self.cluster
        try:
            await self.refresh()
        except KafkaError as error:
            log.debug("kafka.no_metadata", topics=topics, error=repr(error))
            return False
        finally:
            await asyncio.sleep(_PAUSE_S)
        return True


class KafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """A consumer of committed messages, opened with `start` and closed with `close`."""

    def __init__(self, settings: KafkaSettings, epochs: LogEpochs | None = None) -> None:
        client = KafkaClient(settings, epochs)  # first: if it fails, nothing needs closing
        super().__init__(
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_bytes=_FETCH_BYTES,
            max_partition_fetch_bytes=_PARTITION_FETCH_BYTES,
            request_timeout_ms=round(settings.request_timeout_s * 1000),
            retry_backoff_ms=RETRY_BACKOFF_MS,
        )
        # Replaces aiokafka's client, not connected yet, which would create missing topics.
        self.client = self._client = client
        self._settings = settings

    @classmethod
    async def opened(
        cls, settings: KafkaSettings, stack: AsyncExitStack, epochs: LogEpochs | None = None
    ) -> Self:
        """A connected consumer, closed by the stack; raises BackendError."""
        with mapped_errors(settings):
            consumer = cls(settings, epochs)
            stack.push_async_callback(consumer.close)
            await consumer.start()
        return consumer

    async def start(self) -> None:
        """Connect, and read the metadata; raises what `mapped_errors` maps."""
        await super().start()
        await self.client.refresh()

    def changelog_partitions(self) -> list[TopicPartition]:
        """The changelog's partitions in the metadata; raises KafkaError if it cannot be read."""
        topic = self._settings.topic
        if topic in self.client.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(topic)
        if topic not in self.client.topic_ids:
            raise UnknownTopicOrPartitionError(topic)
        numbers = self.partitions_for_topic(topic)
        return [TopicPartition(topic, number) for number in sorted(numbers)]

    async def recent_offsets(
        self, addresses: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offsets of the lookback; raises what `mapped_errors` maps."""
        since_ms = int((time.time() - self._settings.lookback_s) * 1000)
        # The ends first, so that a message between the requests lies behind them.
        ends = await self.end_offsets(addresses)
        found = await self.offsets_for_times(dict.fromkeys(addresses, since_ms))
        firsts = await self.beginning_offsets(addresses)
        return {
            address: max(
                (first.offset if first else ends[address]) - self._settings.lookback_messages,
                firsts[address],
            )
            for address, first in found.items()
        }

    async def shortened_logs(self) -> Collection[TopicPartition]:
        """The partitions whose leader lacks batches that were read; raises KafkaError.

        Sends requests only if the leader may have changed.
        """
        if not (due := self.client.epochs.unverified()):
            return ()
        # At once: on a connection, each waits for the response to a fetch.
        checks = (self._is_other_log(address, ends) for address, ends in due.items())
        outcomes = await asyncio.gather(*checks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        others = [address for address, is_other in zip(due, outcomes, strict=True) if is_other]
        for address in due.keys() - others:
            self.client.epochs.note_verified(address, due[address])
        return others

    async def _is_other_log(self, address: TopicPartition, ends: Sequence[EpochEnd]) -> bool:
        for each in ends:
            if await self._is_shortened(address, each):
                return True
        last = self.client.epochs.last_batch(address)
        return last is not None and not last.is_in_log(
            await self.client.batch_at(address, last.first)
        )

    async def _is_shortened(self, address: TopicPartition, read: EpochEnd) -> bool:
        try:
            return await self.client.epoch_end(address, read.epoch) < read.end
        except (NotImplementedError, IncompatibleBrokerVersion) as error:
            log.warning("kafka.log_not_verified", topic=address.topic, error=repr(error))
            return False

    async def close(self) -> None:
        """Disconnect within a second; never raises."""
        await self._within_time(self.stop())
        # `stop` does not finish if a request was cut off: it raises CancelledError.
        await self._within_time(self.client.close())

    async def _within_time(self, closing: Awaitable[None]) -> None:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S / 2):
                await closing
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
        except (KafkaError, OSError) as error:  # TimeoutError, too
            log.debug("kafka.not_closed", error=repr(error))
