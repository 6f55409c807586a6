"""The whole configuration."""

import json
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
from ruamel.yaml import YAML

from service.config.settings import Settings
from tests.service.config.configuration import AIRPORTS, MINIMAL, dimension_faults, faults

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_first_layer_wins_key_by_key() -> None:
    """A layer changes what it names, and leaves its neighbours alone."""
    upper = {"dimensions": {"airports": {"timeout": "3s"}}}
    lower = {"dimensions": {"airports": AIRPORTS | {"timeout": "1s"}}}

    airports = Settings(upper, lower).dimensions["airports"]

    assert (airports.timeout_s, airports.key) == (3.0, ("faa",))


def test_environment_is_not_read() -> None:
    """Only the layers count; who reads the environment makes a layer of it."""
    assert Settings(MINIMAL).model_fields_set == {"dimensions"}


def test_some_dimension_is_needed() -> None:
    """A sidecar without dimensions answers nothing."""
    with pytest.raises(ValueError, match="at least 1 item"):
        Settings({"dimensions": {}})


def test_names_of_dimensions_are_checked() -> None:
    """A name that could not stand in an address is a fault at that name."""
    (fault,) = faults({"dimensions": {"a/b": AIRPORTS}})

    assert fault.startswith("dimensions.a/b: not a name for a dimension")


def test_keys_are_spelled_exactly() -> None:
    """A key in capitals is another key."""
    (fault,) = faults({"Listen": {}})

    assert fault == "Listen: unknown key; did you mean 'listen'?"


@pytest.mark.parametrize("example", ["parquet.yaml", "postgres.yaml"])
def test_examples_fit_the_schema(example: str) -> None:
    """What the checks take, the JSON Schema takes, too."""
    document = YAML(typ="safe", pure=True).load(EXAMPLES / example)

    jsonschema.validate(document, Settings.model_json_schema())


@pytest.mark.parametrize("wrong", [{"timeout": 5}, {"batch": {"max_keys": 0}}, {"tmeout": "1s"}])
def test_schema_refuses_what_checks_refuse(wrong: dict[str, Any]) -> None:
    """An editor that knows the schema marks units, ranges and unknown keys."""
    document = {"dimensions": {"airports": AIRPORTS | wrong}}

    assert dimension_faults(**wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, Settings.model_json_schema())


def test_schema_shows_no_class_of_ours() -> None:
    """Defaults stand in the schema as they would in the file."""
    definitions = json.loads(json.dumps(Settings.model_json_schema()))["$defs"]

    assert definitions["Cache"]["properties"]["ttl"]["default"] == "10m"
    assert definitions["Listen"]["properties"]["health"]["default"] == "0.0.0.0:8816"


def test_errors_never_show_values() -> None:
    """A password in a wrong place stays out of the error, wherever that is logged."""
    with pytest.raises(ValueError, match="validation error") as raised:
        Settings({"auth": "geheim", "listen": {"http": "127.0.0.1:1", "x": "geheim"}}, MINIMAL)

    assert "geheim" not in str(raised.value)
