"""Changelog formats, and the decoder of each."""

from collections.abc import Mapping

from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.upsert_json import UpsertDecoder
from lookup_core.compatibility import TextEnum


class ChangelogFormat(TextEnum):
    """The encoding of a topic's messages."""

    DEBEZIUM_JSON = "debezium_json"
    UPSERT_JSON = "upsert_json"


DECODERS: Mapping[ChangelogFormat, type[DebeziumDecoder | UpsertDecoder]] = {
    ChangelogFormat.DEBEZIUM_JSON: DebeziumDecoder,
    ChangelogFormat.UPSERT_JSON: UpsertDecoder,
}
