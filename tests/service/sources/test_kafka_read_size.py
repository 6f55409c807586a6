"""How many messages are read at once."""

import pytest

from service.connectors.kafka.reader import KafkaReadSize


@pytest.mark.parametrize(
    ("sizes_bytes", "expected"),
    [
        ([4_000] * 50, 98),
        ([1_000, 7_000], 98),
        ([10], 1000),
        ([0], 1000),
        ([10_000_000], 1),
    ],
)
def test_messages_fit_the_time_for_decoding(sizes_bytes: list[int], expected: int) -> None:
    """As many as have room, by the mean of the last ones; at least one, at most a thousand."""
    size = KafkaReadSize()

    size.note(sizes_bytes)

    assert size.messages == expected


def test_few_are_read_at_first() -> None:
    """Until messages have come, it is not known how large they are; and no news is none."""
    size = KafkaReadSize()

    size.note([])

    assert size.messages == 100
