"""What is known of a topic over the lives of its readers."""

from service.sources.kafka_topic import KafkaTopic


def test_later_partitions_begin_at_their_first_message() -> None:
    """Partitions that were there at first begin where that was found out, others at zero."""
    topic = KafkaTopic({"planes-0": 7})

    assert (topic.begin("planes-0"), topic.begin("planes-1")) == (7, 0)


def test_nothing_is_known_at_first() -> None:
    """A new source has not asked yet."""
    topic = KafkaTopic()

    assert (topic.begins, topic.id, topic.begin("planes-0")) == (None, None, 0)
