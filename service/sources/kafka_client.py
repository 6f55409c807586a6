"""aiokafka's connections to a cluster, with metadata of our topics only.

Creates no topic by asking for it, and tells whether a topic is still the one that it was. Reading
is the business of the consumer above it.
"""

import asyncio
import random

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError

from service.sources.kafka_metadata import TopicMetadata, TopicMetadataRequest
from service.sources.kafka_settings import RETRY_BACKOFF_MS, KafkaSettings

log = structlog.get_logger()

_REST_S = 0.1  # between two questions: the library asks without a rest while a leader is unknown


class KafkaClient(AIOKafkaClient):  # type: ignore[misc]  # aiokafka has no types
    """The connections of one consumer."""

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(
            bootstrap_servers=list(settings.brokers),
            metadata_max_age_ms=round(settings.discovery_interval_s * 1000),
            retry_backoff_ms=RETRY_BACKOFF_MS,
            **settings.connection_options(),
        )
        self.topic_ids: dict[str, bytes] = {}  # of the topics that there were when last asked
        self._own_topics = settings.topics
        self._settings = settings

    async def bootstrap(self) -> None:
        """Connect to any of the brokers; raises KafkaError or OSError that says why it cannot."""
        try:
            await super().bootstrap()
        except KafkaConnectionError:
            if self._settings.security_protocol != "PLAINTEXT":
                await self._fail_with_cause()
            raise

    async def refresh(self) -> None:
        """Ask for our topics now; raises KafkaError where no broker answers."""
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
                self.cluster.update_metadata(metadata.of_cluster)
                return
        raise failure

    async def _fail_with_cause(self) -> None:
        # The library only logs why it is not let in.
        host, port, _ = self.hosts[0]
        connection = await create_conn(host, port, **self._settings.connection_options())
        connection.close()

    async def _metadata_update(self, cluster_metadata: ClusterMetadata, topics: object) -> bool:
        # The library's own task calls this, with topics that the consumer is assigned to.
        assert cluster_metadata is self.cluster
        try:
            await self.refresh()
        except KafkaError as error:
            log.debug("kafka.no_metadata", topics=topics, error=repr(error))
            return False
        finally:
            await asyncio.sleep(_REST_S)
        return True
