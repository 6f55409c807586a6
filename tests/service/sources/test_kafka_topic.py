"""What is known of a topic over the lives of its readers."""

from service.connectors.kafka.topic import KafkaTopic


def test_later_partitions_begin_at_their_first_message() -> None:
    """Partitions that were there at first begin where that was found out, others at zero."""
    topic = KafkaTopic({"planes-0": 7})

    assert (topic.begin("planes-0"), topic.begin("planes-1")) == (7, 0)


def test_nothing_is_known_at_first() -> None:
    """A new source has not asked yet."""
    topic = KafkaTopic()

    assert (topic.begins, topic.id, topic.begin("planes-0")) == (None, None, 0)


def test_partitions_are_remembered_apart() -> None:
    """What was told in one partition says nothing of another."""
    topic = KafkaTopic()
    topic.log("planes-1")

    topic.log("planes-0").note((20, 25), 5)

    assert not topic.log("planes-0").is_news((20, 24))
    assert topic.log("planes-1").is_news((20, 24))


def test_added_partition_moves_keys() -> None:
    """When there is one more, whatever was told in any may be told again in any."""
    topic = KafkaTopic()
    topic.log("planes-0").note((20, 25), 5)
    topic.log("planes-1").note((10, 15), 5)

    added = topic.log("planes-2")

    former = [log.is_news((20, 24)) for log in (topic.log("planes-1"), added)]
    assert former == [False, False]
