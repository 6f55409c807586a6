"""Values below `config` of the chart are checked by the schema of the sidecar's configuration."""

import json

from service.config.settings import Settings
from tests.k8s.chart_schema import FILE, chart_schema


def test_file_has_the_settings_of_now() -> None:
    """`python -m tests.k8s.chart_schema` would write just this."""
    assert FILE.read_text() == chart_schema(FILE.read_text())


def test_former_settings_are_replaced() -> None:
    """A definition that there is no more goes, one that is new comes, and the chart's stay."""
    text = """{
  "definitions": {
    "Former": {"type": "object"},
    "objectName": {"type": "string"}
  }
}
"""

    definitions = json.loads(chart_schema(text))["definitions"]

    expected = {*Settings.model_json_schema()["$defs"], "Settings", "objectName"}
    assert set(definitions) == expected


def test_configuration_is_checked_in_full() -> None:
    """All below `config` is held against the settings, whatever the chart asks beyond them."""
    config = json.loads(FILE.read_text())["properties"]["config"]

    assert config["allOf"] == [{"$ref": "#/definitions/Settings"}]
