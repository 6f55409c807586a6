"""What one consumer reads, and from where, with a consumer that has no brokers."""

from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from service.connectors.kafka.assignment import KafkaAssignment
from service.connectors.kafka.progress import Clocks
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.kafka.topic import KafkaTopic
from tests.service.sources.fake_consumer import ONE, TWO, FakeConsumer

SETTINGS = KafkaSettings(("one:9092",), "planes", heartbeat_topic="beats")
FIRST, SECOND = TopicPartition("planes", 0), TopicPartition("planes", 1)
BEAT = TopicPartition("beats", 0)
NOW = Clocks(0.0, 0.0)


@pytest.fixture
def consumer() -> FakeConsumer:
    """Of a topic of one partition, without heartbeats."""
    return FakeConsumer(SETTINGS)


@pytest.fixture
def topic() -> KafkaTopic:
    """Not yet known."""
    return KafkaTopic()


@pytest.fixture
def assignment(consumer: FakeConsumer, topic: KafkaTopic) -> KafkaAssignment:
    """Nothing is read yet."""
    return made(consumer, topic)


def made(consumer: FakeConsumer, topic: KafkaTopic) -> KafkaAssignment:
    """The assignment of a new reader."""
    fake: object = consumer
    return KafkaAssignment(fake, SETTINGS, topic=topic)  # type: ignore[arg-type]  # stands for one


async def test_partition_is_read_from_its_position(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """What lies between beginning and end is where it goes on, and nobody hears of a restart."""
    consumer.ranges[FIRST] = (3, 9)

    await assignment.add(FIRST, position=5)
    await assignment.update(at=NOW)

    assert (consumer.positions, assignment.restarted) == ({FIRST: 5}, {})
    assert (assignment.waiting, consumer.refreshed_total) == ({}, 0)


@pytest.mark.parametrize("position", [2, 10])
async def test_position_that_is_not_there_restarts(
    assignment: KafkaAssignment, consumer: FakeConsumer, position: int
) -> None:
    """Before the beginning or behind the end, a partition is read from its beginning."""
    consumer.ranges[FIRST] = (3, 9)

    await assignment.add(FIRST, position=position)
    await assignment.update(at=NOW)

    assert consumer.positions == {FIRST: 3}
    assert list(assignment.restarted) == [FIRST]


async def test_nothing_new_assigns_nothing(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """What the consumer has fetched already is thrown away with its assignment: so rarely."""
    await assignment.add(FIRST, position=0)
    for _ in range(3):
        await assignment.update(at=NOW)

    assert consumer.assigned_total == 1


async def test_second_partition_keeps_the_first(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """Another partition changes nothing about where the others are, or whether they are paused."""
    consumer.ranges = {FIRST: (0, 9), SECOND: (0, 9)}
    await assignment.add(FIRST, position=0)
    await assignment.update(at=NOW)
    assignment.pause([FIRST], at=NOW)
    consumer.positions[FIRST] = 4
    await assignment.look(at=NOW)

    consumer.counts["planes"] = 2
    await assignment.add(SECOND, position=7)
    await assignment.update(at=NOW)

    assert (consumer.positions, consumer.paused) == ({FIRST: 4, SECOND: 7}, {FIRST})


async def test_unknown_partition_is_asked_for(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """A partition that the metadata lacks may be new: they are had anew, and it waits."""
    await assignment.add(SECOND, position=0)
    await assignment.update(at=NOW)

    assert consumer.refreshed_total == 1
    assert (assignment.waiting, assignment.progress) == ({SECOND: 0}, {})


async def test_lost_partition_begins_anew(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """What the broker does not have is not waited for; the reason is told once."""
    await assignment.add(FIRST, position=0)
    await assignment.update(at=NOW)
    consumer.ranges[FIRST] = (8, 9)

    assignment.lose([FIRST])
    await assignment.update(at=NOW)

    assert (consumer.positions, list(assignment.restarted)) == ({FIRST: 8}, [FIRST])


async def test_other_topic_restarts_all(
    assignment: KafkaAssignment, consumer: FakeConsumer, topic: KafkaTopic
) -> None:
    """With another id all begins anew, also what is there no more; then the id is settled."""
    consumer.counts["planes"] = 2
    for address in (FIRST, SECOND):
        await assignment.add(address, position=0)
    await assignment.update(at=NOW)
    assignment.note_told()
    consumer.topic_ids["planes"], consumer.counts["planes"] = TWO, 1

    await assignment.update(at=NOW)
    assignment.note_told()
    ids = [topic.id]
    assignment.restarted.clear()
    assignment.note_told()

    assert [*ids, topic.id] == [ONE, TWO]
    assert (list(assignment.progress), list(assignment.waiting)) == ([FIRST], [SECOND])


async def test_new_reader_notices_another_topic(consumer: FakeConsumer, topic: KafkaTopic) -> None:
    """What former readers have told was of another topic: the position means nothing."""
    topic.id, consumer.topic_ids["planes"] = ONE, TWO
    consumer.ranges[FIRST] = (0, 9)
    assignment = made(consumer, topic)

    await assignment.add(FIRST, position=5)
    await assignment.update(at=NOW)

    assert (consumer.positions, list(assignment.restarted)) == ({FIRST: 0}, [FIRST])


async def test_missing_topic_is_raised(assignment: KafkaAssignment, consumer: FakeConsumer) -> None:
    """A topic that went is not the same as one without changes."""
    await assignment.add(FIRST, position=0)
    await assignment.update(at=NOW)
    del consumer.topic_ids["planes"]

    with pytest.raises(UnknownTopicOrPartitionError):
        await assignment.update(at=NOW)

    assert consumer.refreshed_total == 1  # it might have been there again


async def test_heartbeats_are_read_from_their_end(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """They are read as soon as there are any, and again from their end when they were cut off."""
    consumer.ranges = {FIRST: (0, 9), BEAT: (0, 70)}
    await assignment.add(FIRST, position=5)
    await assignment.update(at=NOW)
    before = dict(consumer.positions)

    consumer.counts["beats"] = 1
    await assignment.update(at=NOW)
    found = dict(consumer.positions)
    consumer.ranges[BEAT] = (80, 90)
    assignment.lose([BEAT])
    await assignment.update(at=NOW)

    assert (before, found) == ({FIRST: 5}, {FIRST: 5, BEAT: 70})
    assert (consumer.positions, assignment.restarted) == ({FIRST: 5, BEAT: 90}, {})


async def test_pause_replaces_the_one_before(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """Who is not named any more is read again; a partition that is not read yet may be named."""
    await assignment.add(FIRST, position=0)
    await assignment.update(at=NOW)
    states = []

    for addresses in ([FIRST, SECOND], [SECOND], []):
        assignment.pause(addresses, at=NOW)
        states.append(set(consumer.paused))

    assert states == [{FIRST}, set(), set()]


async def test_cut_off_update_is_made_up_for(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """Pauses between a loss and the next update touch nothing that the consumer does not have."""
    await assignment.add(FIRST, position=0)
    await assignment.update(at=NOW)
    assignment.lose([FIRST])

    assignment.pause([FIRST], at=NOW)
    before = set(consumer.paused)
    await assignment.update(at=NOW)

    assert (before, consumer.paused) == (set(), {FIRST})


async def test_paused_partitions_are_not_silent(assignment: KafkaAssignment) -> None:
    """Who is not asked does not answer; what counts is who is asked, and heard last."""
    later = Clocks(9.0, 9000.0)
    await assignment.add(FIRST, position=0)
    await assignment.update(at=NOW)
    asked_s = assignment.unanswered_s(at=later)

    assignment.pause([FIRST], at=later)

    assert (asked_s, assignment.unanswered_s(at=later)) == (9.0, 0.0)


def test_heartbeats_are_not_asked_for_without_topic(
    consumer: FakeConsumer, topic: KafkaTopic
) -> None:
    """Where no heartbeats are configured, none are looked for."""
    fake: object = consumer
    settings = replace(SETTINGS, heartbeat_topic=None)
    assignment = KafkaAssignment(fake, settings, topic=topic)  # type: ignore[arg-type]  # as above
    consumer.counts["beats"] = 1

    assignment._follow_heartbeats()

    assert not assignment._is_outdated
