"""Names that can stand in addresses, metrics and variables."""

import pytest

from service.config.settings import check_dimension_name


@pytest.mark.parametrize("name", ["customers", "A", "9", "a_b", "a-b", "a.b", "a" * 63])
def test_plain_names_are_taken(name: str) -> None:
    """Letters, digits, dots, hyphens and single underscores make a name."""
    assert check_dimension_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "_a", "a_", "a__b", "a b", "a/b", "..", "-a", "ä", "a\n", "a" * 64]
)
def test_other_names_are_refused(name: str) -> None:
    """What would have to be escaped somewhere, or part a variable's words, is no name."""
    with pytest.raises(ValueError, match="not a name for a dimension"):
        check_dimension_name(name)
