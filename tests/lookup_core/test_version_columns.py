"""Which columns say when a row is valid."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import VersionColumns, version_columns

COLUMNS = pa.schema(
    [
        pa.field("name", pa.utf8()),
        pa.field("since", pa.date32(), metadata={b"a": b"b"}),
        pa.field("until", pa.date32()),
    ]
)


@pytest.mark.parametrize(
    "versions", [VersionColumns("since", "until"), VersionColumns("until"), VersionColumns("name")]
)
def test_marks_are_read_back(versions: VersionColumns) -> None:
    """Marked columns are the same columns, and tell which they are."""
    marked = versions.marked(COLUMNS)

    assert marked.equals(COLUMNS)
    assert version_columns(marked) == versions
    assert marked.field("since").metadata[b"a"] == b"b"


def test_columns_without_marks_have_no_versions() -> None:
    """Whatever else is said of a column is no mark."""
    assert version_columns(COLUMNS) is None


def test_names_are_those_that_there_are() -> None:
    """One of them may be left out."""
    assert VersionColumns("a", "b").names == ("a", "b")
    assert VersionColumns("a").names == ("a",)
