"""What is known of the table behind a dimension."""

from lookup_core.dimension_schema import TableOrigin


def test_name_is_written_without_quotes() -> None:
    """Schema and table have a dot between them, whatever their characters."""
    assert TableOrigin("my schema", 'a"b').name == 'my schema.a"b'


def test_nothing_is_promised_by_default() -> None:
    """Rows in a changelog are not relied upon, nor former values, unless somebody says so."""
    origin = TableOrigin("public", "t")

    assert (origin.tells_rows, origin.has_full_identity) == (False, False)


def test_another_table_may_have_its_name() -> None:
    """Changelogs have the name only; whoever describes the table sees that it is another one."""
    former, present = (TableOrigin("public", "t", table_id=number) for number in (1, 2))

    assert former.name == present.name
    assert former != present


def test_other_rows_are_not_told() -> None:
    """Who makes other rows of the table's leaves all else as it is."""
    origin = TableOrigin("public", "t", table_id=5, tells_rows=True, has_full_identity=True)

    assert origin.without_rows() == TableOrigin("public", "t", table_id=5, has_full_identity=True)
