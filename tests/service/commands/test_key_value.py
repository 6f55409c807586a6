"""Keys as they are typed, and as they are asked for."""

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from service.commands.key_arguments import KeyField, key_value

TEXT = KeyField("t", "string")
WHOLE = KeyField("w", "int64")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "JFK", "JFK"),
        ("string", "42", "42"),
        ("string", "null", "null"),
        ("string", '"[a]"', "[a]"),
        ("string", "[a]", "[a]"),
        ("int64", "42", 42),
        ("uint8", "-1", -1),
        ("int32", "null", None),
        ("int64", "x", "x"),
        ("int64", "1.5", 1.5),
        ("double", "NaN", "NaN"),
        ("bool", "true", True),
        ("date32[day]", "2013-01-01", "2013-01-01"),
        ("timestamp[us, tz=UTC]", "2013-01-01T05:00:00Z", "2013-01-01T05:00:00Z"),
        ("decimal128(10, 2)", "1.50", "1.50"),
        ("uuid", "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_values_have_the_fields_type(kind: str, text: str, value: object) -> None:
    """Numbers and booleans are typed without quotes, all else is text; a misfit stays text."""
    assert key_value(text, [KeyField("k", kind)]) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("a,5", ["a", 5]), (",5", ["", 5]), ('["a,b", 5]', ["a,b", 5]), ("[a,5", ["[a", 5])],
)
def test_composite_keys_are_lists(text: str, value: object) -> None:
    """Parts stand between commas, or in a JSON list where they hold commas themselves."""
    assert key_value(text, [TEXT, WHOLE]) == value


@pytest.mark.parametrize("text", ["a", "a,b,c", ""])
def test_number_of_parts_must_fit(text: str) -> None:
    """A part too few or too many is told with the key's columns."""
    with pytest.raises(typer.BadParameter, match=r"but the key is \(t, w\)"):
        key_value(text, [TEXT, WHOLE])


@given(st.text().filter(lambda text: text[:1] not in {"[", '"'}))
def test_any_text_is_a_text_key(text: str) -> None:
    """Whatever is typed for a text column is looked up as it is."""
    assert key_value(text, [TEXT]) == text


@given(st.text())
def test_quoted_texts_are_always_possible(text: str) -> None:
    """JSON names every text, whatever it begins with."""
    assert key_value(json.dumps(text), [TEXT]) == text
