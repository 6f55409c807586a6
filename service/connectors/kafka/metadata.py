"""Kafka Metadata request, version 10 (Kafka 2.8): returns topic ids and creates no topic.

aiokafka supports version 5 only. Its requests create missing topics, and its responses do not show
that a topic was deleted and created again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataResponse_v1
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_NO_TOPIC = bytes(16)


class _TopicId(AbstractType):  # type: ignore[misc]  # aiokafka has no types
    """A UUID in 16 bytes; a topic that is created again gets another one."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


_NAME = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)
_NUMBERS = CompactArray(Int32)
_BROKERS = CompactArray(
    ("node_id", Int32), ("host", _NAME), ("port", Int32), ("rack", _NAME), _TAGS
)
_PARTITIONS = CompactArray(
    ("error_code", Int16),
    ("partition", Int32),
    ("leader", Int32),
    ("leader_epoch", Int32),
    ("replicas", _NUMBERS),
    ("isr", _NUMBERS),
    ("offline_replicas", _NUMBERS),
    _TAGS,
)
_TOPICS = CompactArray(
    ("error_code", Int16),
    ("topic", _NAME),
    ("topic_id", _TopicId),
    ("is_internal", Boolean),
    ("partitions", _PARTITIONS),
    ("operations", Int32),
    _TAGS,
)


class TopicMetadataResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    """The response."""

    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", _BROKERS),
        ("cluster_id", _NAME),
        ("controller_id", Int32),
        ("topics", _TOPICS),
        ("operations", Int32),
        _TAGS,
    )


class TopicMetadataQuery(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """The encoded request."""

    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = TopicMetadataResponse
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _TopicId), ("name", _NAME), _TAGS)),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_operations", Boolean),
        ("include_topic_operations", Boolean),
        _TAGS,
    )


class TopicMetadataRequest(Request[TopicMetadataQuery]):  # type: ignore[misc]  # as above
    """A request for the metadata of these topics."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[TopicMetadataQuery]) -> TopicMetadataQuery:
        """The request for a broker that supports this version."""
        no_tags: dict[int, bytes] = {}
        topics = [(_NO_TOPIC, name, no_tags) for name in self._topics]
        return request_struct_class(topics, False, False, False, no_tags)  # noqa: FBT003  # in the order of the schema


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A response in the form that aiokafka understands, and the ids of the existing topics."""

    of_cluster: MetadataResponse_v1
    topic_ids: Mapping[str, bytes]
    _leader_epochs: Mapping[str, Mapping[int, int]]

    def leader_epochs(self, topic: str) -> Mapping[int, int]:
        """The epoch of each partition's leader."""
        return self._leader_epochs.get(topic, {})

    @classmethod
    def read(cls, response: TopicMetadataResponse) -> "TopicMetadata":
        """Convert a response: fields that version 1 lacks are left out."""
        brokers = [broker[:4] for broker in response.brokers]
        topics = [
            (error, name, is_internal, [_of_version_1(each) for each in partitions])
            for error, name, _, is_internal, partitions, *_ in response.topics
        ]
        ids = {name: topic_id for error, name, topic_id, *_ in response.topics if not error}
        epochs = {
            name: {number: epoch for error, number, _, epoch, *_ in partitions if not error}
            for error, name, _, _, partitions, *_ in response.topics
        }
        return cls(MetadataResponse_v1(brokers, response.controller_id, topics), ids, epochs)


def _of_version_1(partition: Sequence[object]) -> tuple[object, ...]:
    error, number, leader, _, replicas, in_sync, *_ = partition
    return error, number, leader, replicas, in_sync
