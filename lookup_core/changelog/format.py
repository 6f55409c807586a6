"""Changelog formats, and the decoder of each."""

from enum import StrEnum

from lookup_core.changelog.change_decoder import ChangeDecoder, DecoderSettings, JsonLoads
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.upsert_json import UpsertDecoder
from lookup_core.dimension_schema import DimensionSchema


class ChangelogFormat(StrEnum):
    """The encoding of a topic's messages."""

    DEBEZIUM_JSON = "debezium_json"
    UPSERT_JSON = "upsert_json"


_DECODERS: dict[ChangelogFormat, type[DebeziumDecoder | UpsertDecoder]] = {
    ChangelogFormat.DEBEZIUM_JSON: DebeziumDecoder,
    ChangelogFormat.UPSERT_JSON: UpsertDecoder,
}


def decoder_for(
    changelog_format: ChangelogFormat,
    schema: DimensionSchema,
    *,
    settings: DecoderSettings,
    loads: JsonLoads,
) -> ChangeDecoder:
    """The decoder for a topic of this format and a dimension of this schema."""
    return _DECODERS[changelog_format](schema, settings, loads=loads)
