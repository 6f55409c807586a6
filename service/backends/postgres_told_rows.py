"""Whether a row in a table's changelog is, for sure, the row that a query brings.

For events of Debezium's, whatever its settings; whether they arrive is another matter. Where it is
not sure, changes tell keys only.
"""

from collections.abc import Sequence

from pyarrow import types

from service.backends.catalog_row import CatalogRow, postgres_type
from service.backends.postgres_types import column_reading

_TOLD_TYPES = frozenset(
    {"int2", "int4", "int8", "bool", "float4", "float8", "text", "varchar", "uuid"}
    | {"date", "timestamp", "timestamptz"}
)
_MOST_DIGITS_INLINE = 37  # of a numeric, which has 23 bytes then; from 25 on it may be moved out


def tells_rows(
    table: CatalogRow, *, key: Sequence[CatalogRow], columns: Sequence[CatalogRow]
) -> bool:
    """Whether it is, in the dimension of the table that has this key and these columns."""
    is_sent_again = table["has_full_identity"]
    return (
        table["has_exact_texts"]
        and not table["has_unchecked_columns"]
        and _has_one_row_each(table, key)
        and all(_is_told(each, is_sent_again=is_sent_again) for each in (*key, *columns))
    )


def _has_one_row_each(table: CatalogRow, key: Sequence[CatalogRow]) -> bool:
    """Whether a key has one row at most, and its changes come in their order.

    Changes of one primary key are in one partition. Those of another unique key are where the
    primary keys of its rows have them, which may be read in any order. A table that others inherit
    from shows their rows, too.
    """
    primary_key = {*table["primary_key"]}
    is_within = bool(primary_key) and primary_key <= {column["number"] for column in key}
    return is_within and table["has_immediate_key"] and table["heir"] is None


def _is_told(column: CatalogRow, *, is_sent_again: bool) -> bool:
    """Whether the values of a column are told as they are.

    Kafka Connect writes the default of a column where it is NULL, generated columns are not sent,
    and the modifiers of a domain may get lost on the way.
    """
    is_default_for_null = column["may_be_null"] and column["has_default"]
    if is_default_for_null or column["is_generated"] or column["is_domain"]:
        return False
    return column["is_enum"] or (column["is_builtin"] and _has_told_type(column, is_sent_again))


def _has_told_type(column: CatalogRow, is_sent_again: bool) -> bool:  # noqa: FBT001  a fact
    """Whether values of a builtin type are told, if those stored outside their row are, or not.

    An update that leaves them does not send them again but with REPLICA IDENTITY FULL. Texts have a
    placeholder then; others are NULL, depending on the connector's settings.
    """
    name = column["type_name"]
    if name == "bytea":
        return is_sent_again
    if name != "numeric":
        return name in _TOLD_TYPES
    kind = column_reading(postgres_type(column)).type
    return types.is_decimal(kind) and (is_sent_again or kind.precision <= _MOST_DIGITS_INLINE)
