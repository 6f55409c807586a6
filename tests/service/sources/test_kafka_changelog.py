"""A topic of Kafka as a source, before it is opened; tests/integration reads real ones."""

import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.splits import ReadingMode
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.kafka.settings import KafkaSettings
from tests.service.sources.keys_decoder import SCHEMA, KeysDecoder

NOBODY = KafkaSettings(("127.0.0.1:1",), "planes")  # a port that nobody listens on


def source(settings: KafkaSettings = NOBODY) -> KafkaChangelog:
    """A changelog with a decoder that is not asked."""
    return KafkaChangelog(settings, lambda _: KeysDecoder())


def test_changelog_has_no_end() -> None:
    """One reader reads all partitions for as long as it is let."""
    changelog = source()

    assert (changelog.is_bounded, changelog.reading_mode) == (False, ReadingMode.MULTIPLEXED)


async def test_partitions_need_a_broker() -> None:
    """Which there are is not made up."""
    with pytest.raises(BackendError) as caught:
        async with source().enumerator(SCHEMA):
            pass

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE
    assert "127.0.0.1:1" in caught.value.detail


def test_adapters_are_made_for_a_schema() -> None:
    """Each reader decodes for the schema that it is made for."""
    asked: list[DimensionSchema] = []

    def decoder(schema: DimensionSchema) -> KeysDecoder:
        asked.append(schema)
        return KeysDecoder()

    changelog = KafkaChangelog(NOBODY, decoder)
    changelog.reader(SCHEMA)
    interval_s = changelog.enumerator(SCHEMA).discovery_interval_s

    assert (asked, interval_s) == ([SCHEMA], 10.0)
