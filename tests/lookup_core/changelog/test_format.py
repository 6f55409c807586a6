"""The formats of a changelog."""

import orjson
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import ChangeDecoder, DecoderSettings
from lookup_core.changelog.debezium_json import DebeziumDecoder
from lookup_core.changelog.format import ChangelogFormat, decoder_for
from lookup_core.changelog.upsert_json import UpsertDecoder
from tests.lookup_core.changelog.change_messages import schema_of

SCHEMA = schema_of({"id": pa.int64()}, {"name": pa.utf8()})
SETTINGS = DecoderSettings("public.t", with_rows=False)


@pytest.mark.parametrize(
    ("name", "expected"), [("debezium_json", DebeziumDecoder), ("upsert_json", UpsertDecoder)]
)
def test_each_format_has_its_decoder(name: str, expected: type[ChangeDecoder]) -> None:
    """A format is decoded by the decoder that is made for it."""
    decoder = decoder_for(ChangelogFormat(name), SCHEMA, settings=SETTINGS, loads=orjson.loads)

    assert type(decoder) is expected
