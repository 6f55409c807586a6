"""What a dimension offers: its columns in the order asked, and nothing that it has not."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema, TableOrigin, VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest

SCHEMA = DimensionSchema(
    key=pa.schema({"id": pa.int64()}),
    columns=pa.schema({"name": pa.utf8(), "tier": pa.int32(), "city": pa.utf8()}),
)


def test_all_columns_are_the_default() -> None:
    """Whoever asks for no columns in particular gets all of them."""
    assert SCHEMA.select(None) == SCHEMA.columns


def test_columns_come_in_order_asked() -> None:
    """The order is the caller's, the types are the dimension's."""
    assert SCHEMA.select(["city", "tier"]) == pa.schema({"city": pa.utf8(), "tier": pa.int32()})


def test_no_columns_may_be_asked() -> None:
    """Whoever wants to know only whether a row is there asks for no columns."""
    assert SCHEMA.select([]) == pa.schema([])


@pytest.mark.parametrize(
    ("names", "detail"),
    [
        (["tear"], "the dimension has no column tear; did you mean tier?"),
        (["Name"], "the dimension has no column Name; did you mean name?"),
        (["xyz", "name", "xyz"], "the dimension has no column xyz; there is name, tier, city"),
        (["tear", "id"], "id: in the key, so the records have it already"),
    ],
)
def test_unknown_columns_are_all_named(names: list[str], detail: str) -> None:
    """A refusal names what is not there, once each, with the nearest name; the key is no column."""
    with pytest.raises(InvalidRequest) as caught:
        SCHEMA.select(names)

    assert (caught.value.code, caught.value.detail) == (ErrorCode.UNKNOWN_COLUMN, detail)


def test_column_is_asked_for_once() -> None:
    """The same column twice is refused: the answer could not tell the two apart."""
    with pytest.raises(InvalidRequest) as caught:
        SCHEMA.select(["name", "tier", "name"])

    assert caught.value.code is ErrorCode.BAD_REQUEST


UUID_KEY = pa.field("id", pa.binary(16), metadata={"logical": "uuid"})


def changed(**columns: pa.DataType) -> DimensionSchema:
    """The same key with these columns."""
    return DimensionSchema(SCHEMA.key, pa.schema(columns))


def test_same_schema_is_the_same_in_all() -> None:
    """A schema that was read again is the same; other types, names or another order are not."""
    again = DimensionSchema(pa.schema(SCHEMA.key), pa.schema(SCHEMA.columns))

    assert SCHEMA.is_same(again)
    for other in (
        changed(name=pa.utf8(), tier=pa.int64(), city=pa.utf8()),
        changed(name=pa.utf8(), rank=pa.int32(), city=pa.utf8()),
        changed(tier=pa.int32(), name=pa.utf8(), city=pa.utf8()),
        DimensionSchema(pa.schema({"id": pa.int32()}), SCHEMA.columns),
    ):
        assert not SCHEMA.is_same(other)


def test_origin_is_a_part_of_the_schema() -> None:
    """What is known of a table's changelog makes another schema; what is promised stays."""
    table = TableOrigin("public", "t")
    schema = DimensionSchema(SCHEMA.key, SCHEMA.columns, table)
    followed = DimensionSchema(
        SCHEMA.key, SCHEMA.columns, TableOrigin("public", "t", tells_rows=True)
    )

    assert schema.is_same(DimensionSchema(SCHEMA.key, SCHEMA.columns, table))
    assert not schema.is_same(followed)
    assert not schema.is_same(SCHEMA)
    assert followed.still_offers(schema)


def test_another_table_is_another_schema() -> None:
    """A table that was put in another's place has rows of its own, with the same columns."""
    former, present = (
        DimensionSchema(SCHEMA.key, SCHEMA.columns, TableOrigin("public", "t", table_id=number))
        for number in (1, 2)
    )

    assert not present.is_same(former)
    assert present.still_offers(former)


def test_uuid_is_not_its_bytes() -> None:
    """A key that turns from uuid to bytes of the same length is another one."""
    uuid = DimensionSchema(pa.schema([UUID_KEY]), SCHEMA.columns)
    plain = DimensionSchema(pa.schema({"id": pa.binary(16)}), SCHEMA.columns)

    assert not uuid.is_same(plain)
    assert not plain.still_offers(uuid)


def test_promise_outlasts_changes_of_other_columns() -> None:
    """Columns that nobody was promised may come, go, move or change."""
    promised = changed(tier=pa.int32(), name=pa.utf8())

    assert SCHEMA.still_offers(promised)
    assert changed(name=pa.utf8(), new=pa.date32(), tier=pa.int32()).still_offers(promised)


@pytest.mark.parametrize(
    "schema",
    [
        changed(name=pa.utf8()),
        changed(name=pa.utf8(), tier=pa.int64()),
        DimensionSchema(pa.schema({"id": pa.int32()}), SCHEMA.columns),
        DimensionSchema(pa.schema({"number": pa.int64()}), SCHEMA.columns),
    ],
)
def test_promise_ends_with_its_columns(schema: DimensionSchema) -> None:
    """A promised column that is gone or of another type, or another key, ends it."""
    assert not schema.still_offers(changed(tier=pa.int32()))


def test_versions_bring_their_times() -> None:
    """As of a time the columns that say when a row is valid stand behind those asked for."""
    versions = VersionColumns("tier", "city")
    schema = DimensionSchema(SCHEMA.key, versions.marked(SCHEMA.columns))

    assert schema.select_versions(["name"]).names == ["name", "tier", "city"]
    assert schema.select_versions(["city"]).names == ["city", "tier"]
    assert schema.select_versions([]).names == ["tier", "city"]
    assert schema.select_versions(None) == schema.columns
    assert schema.select(["name"]).names == ["name"]


def test_dimension_without_versions_has_no_times() -> None:
    """Who asks as of a time where rows have none is told so."""
    with pytest.raises(InvalidRequest, match="leave as_of out") as caught:
        SCHEMA.select_versions(["name"])

    assert caught.value.code is ErrorCode.BAD_REQUEST
