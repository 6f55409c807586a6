"""What a decoder takes and gives."""

from aiokafka import ConsumerRecord

from lookup_core.changelog.change_decoder import ChangeMessage, Decoded, DecoderSettings
from lookup_core.watermark_valve import NO_WATERMARK_MS


def test_record_of_kafka_is_a_message() -> None:
    """What a consumer of Kafka returns can be decoded as it is."""
    record: ConsumerRecord[bytes, bytes] = ConsumerRecord(
        "topic", 0, 1, 5, 0, key=b"k", value=None, checksum=None,
        serialized_key_size=1, serialized_value_size=-1, headers=(),
    )  # fmt: skip

    message: ChangeMessage = record

    assert (message.key, message.value, message.timestamp) == (b"k", None, 5)


def test_nothing_decoded_says_nothing() -> None:
    """No messages have no changes, no time and no faults."""
    decoded = Decoded([])

    assert decoded == Decoded([], NO_WATERMARK_MS, ignored=0, faults={}, nbytes=0)


def test_settings_are_careful_by_default() -> None:
    """What nobody has promised of a table and its messages is not taken for granted."""
    settings = DecoderSettings("public.t", with_rows=False)

    assert (settings.has_full_identity, settings.max_message_bytes) == (False, 8 * 2**20)
