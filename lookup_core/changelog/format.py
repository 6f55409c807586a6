"""The formats of a changelog, and the decoder of each.

What a format looks like stands in the module of its decoder.
"""

from enum import StrEnum

from lookup_core.changelog.change_decoder import ChangeDecoder, DecoderSettings, JsonLoads
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.upsert_json import UpsertDecoder
from lookup_core.dimension_schema import DimensionSchema


class ChangelogFormat(StrEnum):
    """How the messages of a topic are written."""

    DEBEZIUM_JSON = "debezium_json"
    UPSERT_JSON = "upsert_json"


def decoder_for(
    changelog_format: ChangelogFormat,
    schema: DimensionSchema,
    *,
    settings: DecoderSettings,
    loads: JsonLoads,
) -> ChangeDecoder:
    """The decoder of a topic in this format, for a dimension of this schema."""
    return _DECODERS[changelog_format](schema, settings, loads=loads)


_DECODERS: dict[ChangelogFormat, type[DebeziumDecoder | UpsertDecoder]] = {
    ChangelogFormat.DEBEZIUM_JSON: DebeziumDecoder,
    ChangelogFormat.UPSERT_JSON: UpsertDecoder,
}
