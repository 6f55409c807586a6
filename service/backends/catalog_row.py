"""A row of PostgreSQL's catalog, as far as those who ask for it know it.

Which rows and columns there are is said by the queries in `postgres_catalog`.
"""

from typing import Any, Protocol

from service.backends.postgres_types import PostgresType


class CatalogRow(Protocol):
    """Its columns by name."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401  as the database has it
        """The value of the column."""


def postgres_type(column: CatalogRow) -> PostgresType:
    """The type of a column."""
    return PostgresType(
        name=column["type_name"],
        is_builtin=column["is_builtin"],
        modifier=column["modifier"],
        has_exact_equality=column["has_exact_equality"],
    )
