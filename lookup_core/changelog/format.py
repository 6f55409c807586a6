"""Changelog formats, and the decoder of each."""

from collections.abc import Mapping
from enum import StrEnum

from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.upsert_json import UpsertDecoder


class ChangelogFormat(StrEnum):
    """The encoding of a topic's messages."""

    DEBEZIUM_JSON = "debezium_json"
    UPSERT_JSON = "upsert_json"


DECODERS: Mapping[ChangelogFormat, type[DebeziumDecoder | UpsertDecoder]] = {
    ChangelogFormat.DEBEZIUM_JSON: DebeziumDecoder,
    ChangelogFormat.UPSERT_JSON: UpsertDecoder,
}
