"""Dimension schema: selected columns, versions, and when two schemas are the same."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import (
    DimensionSchema,
    TableOrigin,
    VersionColumns,
    version_columns,
)
from lookup_core.errors import ErrorCode, InvalidRequest

KEY = pa.schema({"id": pa.int64()})
SCHEMA = DimensionSchema(KEY, pa.schema({"name": pa.utf8(), "tier": pa.int32(), "city": pa.utf8()}))
UUID = pa.schema([pa.field("id", pa.binary(16), metadata={"logical": "uuid"})])
PLAIN = pa.schema({"id": pa.binary(16)})


def changed(**columns: pa.DataType) -> DimensionSchema:
    """The same key with these columns."""
    return DimensionSchema(KEY, pa.schema(columns))


def from_table(**origin: bool | int) -> DimensionSchema:
    """The same schema, of a table."""
    table = TableOrigin("public", "t", **origin)  # type: ignore[arg-type]  # each of its type
    return DimensionSchema(KEY, SCHEMA.columns, table)


@pytest.mark.parametrize(
    ("names", "expected"),
    [(None, ["name", "tier", "city"]), (["city", "tier"], ["city", "tier"]), ([], [])],
)
def test_columns_come_in_requested_order(names: list[str] | None, expected: list[str]) -> None:
    """The caller names the columns and their order; without names all columns are selected."""
    assert SCHEMA.select(names) == pa.schema([SCHEMA.columns.field(name) for name in expected])


@pytest.mark.parametrize(
    ("names", "code", "detail"),
    [
        (["tear"], "unknown_column", 'column "tear" does not exist; did you mean tier?'),
        (
            ["xyz", "abc", "name", "xyz"],
            "unknown_column",
            'columns "abc", "xyz" do not exist; available: name, tier, city',
        ),
        (["tear", "id"], "unknown_column", 'column "id" is in the key; remove it from columns='),
        (["name", "tier", "name"], "bad_request", "each column may be requested only once"),
    ],
)
def test_wrong_columns_are_refused(names: list[str], code: str, detail: str) -> None:
    """An error names unknown columns with the nearest name; a column is selected once."""
    with pytest.raises(InvalidRequest) as caught:
        SCHEMA.select(names)

    assert (caught.value.code, caught.value.detail) == (ErrorCode(code), detail)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["name"], ["name", "tier", "city"]),
        (["city"], ["city", "tier"]),
        ([], ["tier", "city"]),
        (None, ["name", "tier", "city"]),
    ],
)
def test_versions_bring_their_times(names: list[str] | None, expected: list[str]) -> None:
    """A lookup as of a time adds the columns of validity; without versions it is an error."""
    versions = VersionColumns("tier", "city")
    schema = DimensionSchema(KEY, versions.marked(SCHEMA.columns))

    assert schema.select_versions(names).names == expected
    assert schema.select(["name"]).names == ["name"]
    assert schema.select_names(None) == ("name", "tier", "city")
    with pytest.raises(InvalidRequest, match=r"bad_request: .*; omit as_of"):
        SCHEMA.select_versions(names)


@pytest.mark.parametrize(
    "versions", [VersionColumns("since", "until"), VersionColumns("until"), VersionColumns("name")]
)
def test_version_columns_are_read_back(versions: VersionColumns) -> None:
    """Marked columns keep types and metadata; other metadata marks no version."""
    since = pa.field("since", pa.date32(), metadata={b"a": b"b"})
    columns = pa.schema([pa.field("name", pa.utf8()), since, pa.field("until", pa.date32())])

    marked = versions.marked(columns)

    assert marked.equals(columns)
    assert marked.field("since").metadata[b"a"] == b"b"
    assert (version_columns(marked), version_columns(columns)) == (versions, None)
    assert versions.names == tuple(filter(None, (versions.valid_from, versions.valid_to)))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (SCHEMA, DimensionSchema(pa.schema(KEY), pa.schema(SCHEMA.columns)), True),
        (SCHEMA, changed(name=pa.utf8(), tier=pa.int64(), city=pa.utf8()), False),
        (SCHEMA, changed(name=pa.utf8(), rank=pa.int32(), city=pa.utf8()), False),
        (SCHEMA, changed(tier=pa.int32(), name=pa.utf8(), city=pa.utf8()), False),
        (SCHEMA, DimensionSchema(pa.schema({"id": pa.int32()}), SCHEMA.columns), False),
        (DimensionSchema(UUID, KEY), DimensionSchema(PLAIN, KEY), False),
        (DimensionSchema(KEY, UUID), DimensionSchema(KEY, PLAIN), False),
        (from_table(), from_table(), True),
        (from_table(), SCHEMA, False),
        (from_table(), from_table(reports_rows=True), False),
        (from_table(table_id=1), from_table(table_id=2), False),
    ],
)
def test_same_schema_has_same_origin(
    first: DimensionSchema,
    second: DimensionSchema,
    expected: bool,  # noqa: FBT001
) -> None:
    """Schemas are the same if names, order, types, metadata and table are equal."""
    assert first.is_same(second) is second.is_same(first) is expected


@pytest.mark.parametrize(
    ("schema", "channel", "expected"),
    [
        (SCHEMA, changed(tier=pa.int32(), name=pa.utf8()), True),
        (changed(new=pa.date32(), tier=pa.int32()), changed(tier=pa.int32()), True),
        (from_table(reports_rows=True), from_table(), True),
        (from_table(table_id=2), from_table(table_id=1), True),
        (changed(name=pa.utf8()), changed(tier=pa.int32()), False),
        (changed(tier=pa.int64()), changed(tier=pa.int32()), False),
        (DimensionSchema(PLAIN, SCHEMA.columns), DimensionSchema(UUID, SCHEMA.columns), False),
        (DimensionSchema(pa.schema({"id": pa.int32()}), SCHEMA.columns), SCHEMA, False),
        (DimensionSchema(pa.schema({"number": pa.int64()}), SCHEMA.columns), SCHEMA, False),
    ],
)
def test_channel_schema_outlasts_other_changes(
    schema: DimensionSchema,
    channel: DimensionSchema,
    expected: bool,  # noqa: FBT001
) -> None:
    """A channel's schema holds while its key and its own columns are unchanged."""
    assert schema.still_offers(channel) is expected
