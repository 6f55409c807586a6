"""A partition of the changelog topic, as a split.

Not how far it is read: that is the coordinator's and the reader's to know.
"""

from dataclasses import dataclass
from typing import Self

from aiokafka import TopicPartition

from lookup_core.sources.split import Split


@dataclass(frozen=True, slots=True)
class KafkaPartition(Split):
    """Its id is like `planes-0`."""

    address: TopicPartition
    begin: int  # the offset of the first message that counts, where nobody knows better

    @classmethod
    def of(cls, address: TopicPartition, *, begin: int) -> Self:
        """The split of this partition."""
        return cls(partition_id(address), address, begin)


def partition_id(address: TopicPartition) -> str:
    """The id of its split."""
    return f"{address.topic}-{address.partition}"
