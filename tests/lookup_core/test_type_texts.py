"""Types as texts: the notation of Spark's DDL, and faults in it."""

import re

import pyarrow as pa
import pytest

from lookup_core.type_texts import parsed_type, type_text

LINE = pa.struct({"sku": pa.utf8(), "net price": pa.decimal128(10, 2)})


@pytest.mark.parametrize(
    ("text", "kind", "written"),
    [
        ("int", pa.int32(), "int"),
        (" BigInt ", pa.int64(), "bigint"),
        ("byte", pa.int8(), "tinyint"),
        ("timestamp", pa.timestamp("us", "UTC"), "timestamp"),
        ("timestamp_ntz", pa.timestamp("us"), "timestamp_ntz"),
        ("decimal", pa.decimal128(10, 0), "decimal(10,0)"),
        ("dec ( 5 )", pa.decimal128(5, 0), "decimal(5,0)"),
        ("numeric(38,38)", pa.decimal128(38, 38), "decimal(38,38)"),
        ("array<array<string>>", pa.list_(pa.list_(pa.utf8())), "array<array<string>>"),
        (
            "struct<sku: string, `net price` decimal(10,2)>",
            LINE,
            "struct<sku string, net price decimal(10,2)>",
        ),
        (
            "array<struct<`a``b`:date>>",
            pa.list_(pa.struct({"a`b": pa.date32()})),
            "array<struct<a`b date>>",
        ),
    ],
)
def test_types_are_written_as_in_spark(text: str, kind: pa.DataType, written: str) -> None:
    """A text has one type; blanks, colons and the case of names do not matter."""
    assert parsed_type(text) == kind
    assert type_text(kind) == written


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "expected a type, got nothing"),
        ("int$", "expected a type, got $"),
        ("int int", "expected the end, got int"),
        ("bigin", "bigin is no known type; did you mean bigint?"),
        ("array", "expected <, got the end"),
        ("array<int", "expected >, got the end"),
        ("array<>", "> is no known type"),
        ("map<string,int>", "map is no known type"),
        ("struct<>", "expected the name of a field, got >"),
        ("struct<a int,>", "expected the name of a field, got >"),
        ("struct<a int, a int>", "the field a is named more than once"),
        ("decimal(39)", "decimal(39,0) must have up to 38 digits"),
        ("decimal(0)", "decimal(0,0) must have up to 38 digits"),
        ("decimal(5,6)", "decimal(5,6) must have up to 38 digits"),
        ("decimal(x)", "expected a number of digits, got x"),
        ("array<" * 17 + "int" + ">" * 17, "is nested more than 16 levels deep"),
    ],
)
def test_other_texts_are_refused(text: str, fault: str) -> None:
    """A text that is no type is refused with the place of the fault, or the nearest name."""
    with pytest.raises(ValueError, match=re.escape(fault)):
        parsed_type(text)


def test_other_types_have_arrows_name() -> None:
    """A type without a text in Spark has the name that Arrow gives it."""
    assert type_text(pa.uint8()) == "uint8"
