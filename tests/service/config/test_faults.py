"""Wrong documents, and the whole text of their faults.

The cases stand in `wrong_documents/*.txt`: a document in one line, its faults below it, indented.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest
from pydantic import ValidationError

from service.config.fault_lines import fault_lines
from service.config.settings import Settings
from tests.service.case_tables import cases
from tests.service.config.configuration import (
    AIRPORTS,
    CHANGELOG,
    MINIMAL,
    dimension_faults,
    faults,
    parsed,
    table_faults,
)

TABLES = Path(__file__).parent / "wrong_documents"


def changelog_faults(**values: object) -> list[str]:
    """The faults of these values of a changelog, without its path."""
    found = table_faults(refresh={"changelog": CHANGELOG | values})
    return [fault.removeprefix("refresh.changelog.") for fault in found]


@pytest.mark.parametrize(
    ("find", "document", "expected"),
    [
        *cases(TABLES / "parquet_dimension.txt", dimension_faults),
        *cases(TABLES / "postgres_dimension.txt", table_faults),
        *cases(TABLES / "changelog.txt", changelog_faults),
        *cases(TABLES / "document.txt", lambda **values: faults(values)),
    ],
)
def test_wrong_document_has_these_faults(
    find: Callable[..., list[str]], document: str, expected: list[str]
) -> None:
    """All faults are stated at once, each with its path and its remedy."""
    assert find(**parsed(document)) == expected


def test_variable_of_a_fault_is_named() -> None:
    """A fault names the environment variable that set the value; other faults name none."""
    values = {"foo": {"bar": 1}, "limits": {"channels": "0"}, "listen": {"http": "x"}}
    origins = {("foo", "bar"): "SIDELOOK_FOO__BAR", ("limits",): "SIDELOOK_LIMITS"}

    with pytest.raises(ValidationError) as raised:
        Settings(values, MINIMAL)
    lines = list(fault_lines(raised.value, Settings, origins=origins))

    assert [line.partition(" (set by ")[2] for line in lines] == [
        "",
        "SIDELOOK_LIMITS)",
        "SIDELOOK_FOO__BAR)",
    ]


def test_errors_never_show_values() -> None:
    """The text of pydantic's own error, which may be logged, contains no value."""
    wrong = {"auth": "geheim", "listen": {"x": "geheim"}, "tracing": ["geheim"]}

    with pytest.raises(ValidationError) as raised:
        Settings(wrong, MINIMAL)

    assert raised.value.error_count() == 3
    assert "geheim" not in str(raised.value)


@pytest.mark.parametrize("wrong", [{"timeout": 5}, {"batch": {"max_keys": 0}}, {"tmeout": "1s"}])
def test_schema_refuses_what_checks_refuse(wrong: dict[str, Any]) -> None:
    """The JSON Schema refuses wrong units, ranges and unknown keys."""
    document: Mapping[str, Any] = {"dimensions": {"airports": AIRPORTS | wrong}}

    assert dimension_faults(**wrong)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, Settings.model_json_schema())
