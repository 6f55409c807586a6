"""Changelog topic and its partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from aiokafka import TopicPartition

from lookup_core.changelog.change_decoder import ReplayFilter, level
from lookup_core.sources.splits import Split


@dataclass(slots=True)
class KafkaTopic:
    """Which topic it is, and where the changes that count begin in each partition."""

    begins: Mapping[str, int] | None = None  # {split id: offset}; None: not asked for yet
    id: bytes | None = None  # of the topic whose changes were told last
    _logs: dict[str, ReplayFilter] = field(default_factory=dict)  # {split id: how far it was told}

    def begin(self, split_id: str) -> int:
        """A partition that was not there at first is read from its first message on."""
        return (self.begins or {}).get(split_id, 0)

    def log(self, split_id: str) -> ReplayFilter:
        """What is noted of a partition; with a new one, keys may move between any of them."""
        if split_id not in self._logs:
            self._logs[split_id] = ReplayFilter()
            level(self._logs.values())
        return self._logs[split_id]


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
