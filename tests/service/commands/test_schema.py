"""The command `schema`."""

import json

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

from service.commands.application import run


def test_schema_is_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is JSON, of the dialect that it names, and refuses unknown keys."""
    code = run(["schema"])

    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert (code, schema["$schema"], schema["additionalProperties"]) == (
        0,
        "https://json-schema.org/draft/2020-12/schema",
        False,
    )
    assert {"auth", "listen", "limits", "dimensions"} <= set(schema["properties"])
