"""The Metadata request of Kafka in version 10, on the wire."""

from aiokafka.cluster import ClusterMetadata

from service.connectors.kafka.metadata import (
    TopicMetadata,
    TopicMetadataQuery,
    TopicMetadataRequest,
    TopicMetadataResponse,
)

METADATA = 3
TOPIC_ID = bytes(range(16))
# As a broker of Kafka 4.1 answers: a topic of one partition, and one that is not there.
ANSWER = TopicMetadataResponse(
    0,
    [(1, "127.0.0.1", 9092, None, {})],
    "cluster",
    1,
    [
        (0, "planes", TOPIC_ID, False, [(0, 0, 1, 7, [1], [1], [], {})], -2147483648, {}),
        (3, "beats", bytes(16), False, [], -2147483648, {}),
    ],
    -2147483648,
    {},
)


def test_question_creates_no_topic() -> None:
    """The bytes of the question, which end with three times no: no creation, no rights."""
    query = TopicMetadataRequest(["planes"]).prepare({METADATA: (0, 13)})

    assert isinstance(query, TopicMetadataQuery)
    assert query.encode() == b"\x02" + bytes(16) + b"\x07planes\x00" + bytes(3) + b"\x00"


def test_answer_comes_back_from_bytes() -> None:
    """What is written can be read."""
    assert TopicMetadataResponse.decode(ANSWER.encode()) == ANSWER


def test_ids_are_of_topics_that_exist() -> None:
    """A topic that is not there has no id."""
    assert TopicMetadata.read(ANSWER).topic_ids == {"planes": TOPIC_ID}


def test_library_understands_the_answer() -> None:
    """The library's picture of the cluster is what it would be with a version of its own."""
    cluster = ClusterMetadata()

    cluster.update_metadata(TopicMetadata.read(ANSWER).of_cluster)

    assert [broker.port for broker in cluster.brokers()] == [9092]
    assert cluster.partitions_for_topic("planes") == {0}
    assert cluster.partitions_for_topic("beats") is None
