"""The refusal of a dimension that is not configured."""

import pytest

from lookup_core.errors import ErrorCode, unknown_dimension


@pytest.mark.parametrize(("configured", "listed"), [({"b", "a"}, "a, b"), ((), "none")])
def test_refusal_lists_what_is_configured(configured: set[str], listed: str) -> None:
    """The name that was asked for, and all that there are, sorted."""
    error = unknown_dimension("n\u00e9", configured)

    assert error.code is ErrorCode.UNKNOWN_DIMENSION
    assert error.detail == rf"no dimension 'n\xe9'; configured: {listed}"


def test_long_names_are_cut() -> None:
    """A name of thousands of characters is not told as a whole."""
    assert len(unknown_dimension("a" * 5000, ["b"]).detail) < 200
