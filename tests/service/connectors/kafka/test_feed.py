"""The changelog feed of a topic: assigned partitions, their positions, silence and watermarks."""

from dataclasses import replace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.sources.splits import Split
from service.connectors.kafka.assignment import (
    KafkaAssignment,
    KafkaPartition,
    KafkaTopic,
    partition_id,
)
from service.connectors.kafka.changelog import messages_per_read
from service.connectors.kafka.progress import Clocks, KafkaProgress, Poll
from service.connectors.kafka.settings import KafkaSettings
from tests.service.connectors.kafka.fake_consumer import ONE, TWO, FakeConsumer

SETTINGS = KafkaSettings(("one:9092",), "planes", heartbeat_topic="beats")
FIRST, SECOND = TopicPartition("planes", 0), TopicPartition("planes", 1)
BEAT = TopicPartition("beats", 0)
NOW = Clocks(0.0, 0.0)
WALL_MS = 1_000_000.0  # when the monotonic clock shows zero


@pytest.fixture
def consumer() -> FakeConsumer:
    """A consumer of a topic of one partition, without heartbeats."""
    return FakeConsumer(SETTINGS)


@pytest.fixture
def topic() -> KafkaTopic:
    """A topic that is not known yet."""
    return KafkaTopic()


@pytest.fixture
def assignment(consumer: FakeConsumer, topic: KafkaTopic) -> KafkaAssignment:
    """An assignment without partitions."""
    return assignment_of(consumer, topic)


def assignment_of(
    consumer: FakeConsumer, topic: KafkaTopic, settings: KafkaSettings = SETTINGS
) -> KafkaAssignment:
    """The assignment of a new reader."""
    fake: object = consumer
    return KafkaAssignment(fake, settings, topic=topic)  # type: ignore[arg-type]  # a fake


async def add(assignment: KafkaAssignment, *addresses: TopicPartition, position: int = 0) -> None:
    """Assign partitions and update the consumer."""
    for address in addresses:
        await assignment.add_partition(address, position=position)
    await assignment.update(at=NOW)


@pytest.mark.parametrize(
    ("position", "expected", "restarted"),
    [(3, 3, []), (5, 5, []), (9, 9, []), (2, 3, [FIRST]), (10, 3, [FIRST])],
)
async def test_read_continues_at_its_position(
    assignment: KafkaAssignment,
    consumer: FakeConsumer,
    position: int,
    expected: int,
    restarted: list[TopicPartition],
) -> None:
    """A partition is read from its position, or from its begin if the position is gone."""
    consumer.ranges[FIRST] = (3, 9)

    await add(assignment, FIRST, position=position)

    assert (consumer.positions, [*assignment.restarted]) == ({FIRST: expected}, restarted)
    assert (assignment.waiting, consumer.refreshed_total) == ({}, 0)


async def test_unchanged_assignment_is_kept(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """An update without changes does not assign again, which would discard fetched messages."""
    await add(assignment, FIRST)
    for _ in range(3):
        await assignment.update(at=NOW)

    assert consumer.assigned_total == 1


async def test_new_partition_keeps_the_others(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """A new partition changes neither the positions nor the pauses of others."""
    consumer.ranges = {FIRST: (0, 9), SECOND: (0, 9)}
    await add(assignment, FIRST)
    assignment.pause([FIRST], at=NOW)
    consumer.positions[FIRST] = 4
    await assignment.update_progress(at=NOW)

    consumer.counts["planes"] = 2
    await add(assignment, SECOND, position=7)

    assert (consumer.positions, consumer.paused) == ({FIRST: 4, SECOND: 7}, {FIRST})


async def test_unknown_partition_waits(assignment: KafkaAssignment, consumer: FakeConsumer) -> None:
    """A partition that the metadata lacks waits, and the metadata are read again."""
    await add(assignment, SECOND)

    assert consumer.refreshed_total == 1
    assert (assignment.waiting, assignment.progress) == ({SECOND: 0}, {})


async def test_lost_partition_restarts(assignment: KafkaAssignment, consumer: FakeConsumer) -> None:
    """A partition whose messages are gone is read from its begin; pauses before that wait."""
    await add(assignment, FIRST)
    consumer.ranges[FIRST] = (8, 9)

    assignment.restart_cut_off([FIRST])
    assignment.pause([FIRST], at=NOW)
    before = set(consumer.paused)
    await assignment.update(at=NOW)

    assert (before, consumer.paused) == (set(), {FIRST})
    assert (consumer.positions, list(assignment.restarted)) == ({FIRST: 8}, [FIRST])


async def test_recreated_topic_restarts_all(
    assignment: KafkaAssignment, consumer: FakeConsumer, topic: KafkaTopic
) -> None:
    """All partitions of a topic with another id restart, also those that are missing now."""
    consumer.counts["planes"] = 2
    await add(assignment, FIRST, SECOND)
    assignment.note_reported()
    consumer.topic_ids["planes"], consumer.counts["planes"] = TWO, 1

    await assignment.update(at=NOW)
    assignment.note_reported()
    ids = [topic.reported_id]
    assignment.restarted.clear()
    assignment.note_reported()

    assert [*ids, topic.reported_id] == [ONE, TWO]
    assert (list(assignment.progress), list(assignment.waiting)) == ([FIRST], [SECOND])


async def test_new_reader_detects_recreated_topic(
    consumer: FakeConsumer, topic: KafkaTopic
) -> None:
    """A position of a former topic is not used."""
    topic.reported_id, consumer.topic_ids["planes"] = ONE, TWO
    consumer.ranges[FIRST] = (0, 9)
    assignment = assignment_of(consumer, topic)

    await add(assignment, FIRST, position=5)

    assert (consumer.positions, list(assignment.restarted)) == ({FIRST: 0}, [FIRST])


async def test_missing_topic_is_raised(assignment: KafkaAssignment, consumer: FakeConsumer) -> None:
    """A topic that is gone is an error, after the metadata were read again."""
    await add(assignment, FIRST)
    del consumer.topic_ids["planes"]

    with pytest.raises(UnknownTopicOrPartitionError):
        await assignment.update(at=NOW)

    assert consumer.refreshed_total == 1


async def test_heartbeats_are_read_from_the_end(
    assignment: KafkaAssignment, consumer: FakeConsumer, topic: KafkaTopic
) -> None:
    """Configured heartbeats are read from their end, as soon as there are any."""
    consumer.ranges = {FIRST: (0, 9), BEAT: (0, 70)}
    await add(assignment, FIRST, position=5)
    positions = [dict(consumer.positions)]

    consumer.counts["beats"] = 1
    await assignment.update(at=NOW)
    positions.append(dict(consumer.positions))
    consumer.ranges[BEAT] = (80, 90)
    assignment.restart_cut_off([BEAT])
    await assignment.update(at=NOW)
    positions.append(dict(consumer.positions))
    await add(assignment_of(consumer, topic, replace(SETTINGS, heartbeat_topic=None)), FIRST)
    positions.append(dict(consumer.positions))

    assert positions == [
        *({FIRST: 5}, {FIRST: 5, BEAT: 70}, {FIRST: 5, BEAT: 90}, {FIRST: 0}),
    ]
    assert assignment.restarted == {}


async def test_pause_replaces_the_last_one(
    assignment: KafkaAssignment, consumer: FakeConsumer
) -> None:
    """A pause names all paused partitions, also those without assignment."""
    await add(assignment, FIRST)
    states = []

    for addresses in ([FIRST, SECOND], [SECOND], []):
        assignment.pause(addresses, at=NOW)
        states.append(set(consumer.paused))

    assert states == [{FIRST}, set(), set()]


async def test_paused_partitions_are_not_silent(assignment: KafkaAssignment) -> None:
    """Silence counts for partitions that are read."""
    later = Clocks(9.0, 9000.0)
    await add(assignment, FIRST)
    silent_s = [assignment.unanswered_s(at=later)]

    assignment.pause([FIRST], at=later)

    assert [*silent_s, assignment.unanswered_s(at=later)] == [9.0, 0.0]


def at(monotonic_s: float, *, jump_s: float = 0.0) -> Clocks:
    """A moment; the wall clock may have been set before it."""
    return Clocks(monotonic_s, WALL_MS + (monotonic_s + jump_s) * 1000)


def look(
    progress: KafkaProgress,
    position: int,
    answered_s: float | None,
    *,
    now: float | None = None,
    end: int = 10,
    stable: int | None = None,
) -> None:
    """The consumer's view at `now`; a broker answered at `answered_s` of its wall clock."""
    poll = Poll(position)
    if answered_s is not None:
        answered_ms = int(WALL_MS + answered_s * 1000)
        poll = Poll(position, answered_ms, end, end if stable is None else stable)
    progress.update(poll, at=at((answered_s or 0.0) if now is None else now))


def test_caught_up_means_end_at_assignment() -> None:
    """A partition is caught up at its end at assignment, and an empty one after an answer."""
    progress, empty = KafkaProgress(4, end=6, at=at(0)), KafkaProgress(6, end=6, at=at(0))
    states = [progress.is_caught_up]
    for position in (5, 6, 9):
        look(progress, position, position)
        states.append(progress.is_caught_up)
    look(empty, 6, None, now=1)
    before = empty.is_caught_up
    look(empty, 6, 1.5, now=2, end=6)

    assert states == [False, False, True, True]
    assert (progress.poll.position, progress.poll.high_watermark) == (9, 10)
    assert (before, empty.is_caught_up) == (False, True)


def test_silence_counts_from_last_answer() -> None:
    """Silence counts from the last answer, or from the assignment without any."""
    progress, unanswered = KafkaProgress(10, end=10, at=at(0)), KafkaProgress(0, end=10, at=at(1))
    look(progress, 10, 3.0, now=3.5)
    look(progress, 10, 3.0, now=8.0)
    look(unanswered, 0, None, now=4)

    assert progress.silent_s(at=at(8.0)) == progress.unanswered_s(at=at(8.0)) == 5.0
    assert unanswered.silent_s(at=at(4)) == 3.0


def test_answer_to_an_earlier_request_proves_little() -> None:
    """A request is no more recent than the former answer, and counts once all is read."""
    progress = KafkaProgress(0, end=0, at=at(0))
    look(progress, 0, 1, end=0)
    look(progress, 0, 8, end=0)  # it waited in the socket

    first_s = progress.requested_s(at=at(8))
    look(progress, 0, 9, end=1)
    behind_s = progress.requested_s(at=at(9))
    look(progress, 1, 9, now=10, end=1)

    assert (first_s, behind_s, progress.requested_s(at=at(10))) == (7.0, 8.0, 2.0)


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_changed_wall_clock_is_tolerated(jump_s: float) -> None:
    """A wall clock that is set moves an answer to the last look at most."""
    progress = KafkaProgress(10, end=10, at=at(0))
    look(progress, 10, 1.0, now=2.0)
    answered_ms = int(WALL_MS + 2500)
    progress.update(Poll(10, answered_ms, 10, 10), at=at(3.0, jump_s=jump_s))

    assert 0.0 <= progress.unanswered_s(at=at(3.0)) <= 1.0


def test_unread_messages_count_as_silence() -> None:
    """A partition that is behind is silent since it was read to its end the last time."""
    progress = KafkaProgress(10, end=10, at=at(0))
    look(progress, 10, 1.0)
    look(progress, 50, 5.0, end=900)
    behind_s = progress.silent_s(at=at(5))
    look(progress, 950, 6.0, end=950)

    assert (behind_s, progress.silent_s(at=at(6))) == (4.0, 0.0)


def test_open_transaction_counts_as_silence() -> None:
    """A transaction that hides messages is silence while it stays; moving ones are not."""
    progress, moving = KafkaProgress(5, end=5, at=at(0)), KafkaProgress(5, end=5, at=at(0))
    for second in (1, 2, 3):
        look(progress, 5, second, end=9, stable=5)
    hidden_s = progress.silent_s(at=at(3))
    look(progress, 9, 4, end=9)
    for second in range(1, 20):
        look(moving, 5 + second, second, end=8 + second, stable=5 + second)

    assert (hidden_s, progress.silent_s(at=at(4)), moving.silent_s(at=at(19))) == (2.0, 0.0, 0.0)


def test_pause_is_no_missing_answer() -> None:
    """After a pause no answer is missing; the data are as old as before."""
    progress = KafkaProgress(10, end=10, at=at(0))
    look(progress, 10, 1.0)

    progress.resume(at=at(60))

    assert (progress.unanswered_s(at=at(60)), progress.silent_s(at=at(60))) == (0.0, 59.0)


def test_watermark_is_largest_source_time() -> None:
    """A source time that goes back does not move the watermark."""
    progress = KafkaProgress(0, end=0, at=at(0))
    marks = [progress.watermark_ms]
    for source_time_ms in (500, 300, NO_WATERMARK_MS):
        progress.advance(source_time_ms)
        marks.append(progress.watermark_ms)

    assert marks == [NO_WATERMARK_MS, 500, 500, 500]


def test_heartbeat_waits_for_next_answer() -> None:
    """A heartbeat counts when a later answer has nothing unread, a second after it came."""
    progress, second = KafkaProgress(9, end=9, at=at(0)), KafkaProgress(9, end=9, at=at(0))
    look(progress, 9, 1, end=9)
    marks = []
    progress.add_heartbeat(700, at=at(2))
    progress.add_heartbeat(800, at=at(2.5))
    for position, answered_s in ((9, 1), (9, 3), (10, 3.2), (10, 4)):
        end = 9 if answered_s == 1 else 10
        look(progress, position, answered_s, now=max(answered_s, 2.5), end=end)
        marks.append(progress.watermark_ms)
    second.add_heartbeat(700, at=at(2))
    for answered_s in (2.9, 3.1):
        look(second, 9, answered_s, end=9)
        marks.append(second.watermark_ms)

    assert marks == [NO_WATERMARK_MS, NO_WATERMARK_MS, 700, 800, NO_WATERMARK_MS, 700]


def test_early_heartbeat_does_not_count() -> None:
    """A heartbeat that an older change follows came too early; the next one may count."""
    progress = KafkaProgress(9, end=9, at=at(0))
    marks = []
    progress.add_heartbeat(700, at=at(2))
    progress.drop_early_heartbeats(650)
    for answered_s in (4, 6):
        look(progress, 9, answered_s, end=9)
        marks.append(progress.watermark_ms)
        progress.add_heartbeat(800, at=at(4))
        progress.drop_early_heartbeats(800)

    assert marks == [NO_WATERMARK_MS, 800]


@pytest.mark.parametrize(
    ("sizes_bytes", "expected"),
    [([4_000] * 50, 98), ([1_000, 7_000], 98), ([10], 1000), ([0], 1000), ([10**7], 1)],
)
def test_read_size_follows_messages(sizes_bytes: list[int], expected: int) -> None:
    """A read has as many messages as fit the bytes of a read, by their last sizes."""
    assert messages_per_read(sizes_bytes) == expected


def test_partitions_are_splits() -> None:
    """A split has the name of its partition; partitions that come later begin at zero."""
    partition = KafkaPartition(partition_id(SECOND), SECOND, 7)
    new, known = KafkaTopic(), KafkaTopic({"planes-0": 7})

    assert isinstance(partition, Split)
    assert (partition.id, partition.address, partition.begin) == ("planes-1", SECOND, 7)
    assert partition_id(SECOND) == "planes-1"
    assert (new.begins, new.reported_id, new.begin("planes-0")) == (None, None, 0)
    assert (known.begin("planes-0"), known.begin("planes-1")) == (7, 0)


def test_added_partition_levels_replays() -> None:
    """Partitions have separate replay filters, until a new one may get any key."""
    topic = KafkaTopic()
    topic.log("planes-1")
    topic.log("planes-0").note((20, 25), 5)
    before = [topic.log(f"planes-{number}").is_new((20, 24)) for number in (0, 1)]

    topic.log("planes-2")

    after = [topic.log(f"planes-{number}").is_new((20, 24)) for number in range(3)]
    assert (before, after) == ([False, True], [False] * 3)
