"""Partitions as splits."""

from aiokafka import TopicPartition

from lookup_core.sources.splits import Split
from service.connectors.kafka.topic import KafkaPartition, partition_id

ADDRESS = TopicPartition("planes", 3)


def test_id_names_topic_and_number() -> None:
    """People see which partition is meant."""
    partition = KafkaPartition.of(ADDRESS, begin=7)

    assert isinstance(partition, Split)
    assert (partition.id, partition.address, partition.begin) == ("planes-3", ADDRESS, 7)
    assert partition_id(ADDRESS) == "planes-3"
