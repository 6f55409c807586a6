"""Which columns say when a row is valid."""

import pytest

from service.config.dimension import Versions
from tests.service.config.configuration import dimension, dimension_faults


def test_end_of_a_version_may_be_left_out() -> None:
    """Then it ends where the next one begins."""
    assert Versions.model_validate({"valid_from": "since"}) == Versions(valid_from="since")


def test_end_is_another_column() -> None:
    """A version that ends when it begins is valid at no time."""
    versions = {"valid_from": "since", "valid_to": "since"}

    assert dimension_faults(versions=versions) == [
        "versions.valid_to: is valid_from, too: no version would ever be valid; leave it out"
    ]


@pytest.mark.parametrize(
    ("key", "columns", "fault"),
    [
        ("id", ["name"], "since is not among columns; add it"),
        ("id", ["name", "since"], "until is not among columns; add it"),
        ("until", None, "until is part of the key; name a column beside it"),
    ],
)
def test_versions_need_their_columns(key: str, columns: list[str] | None, fault: str) -> None:
    """Without a database it is seen that a time would not be read with the rows."""
    versions = {"valid_from": "since", "valid_to": "until"}

    found = dimension_faults(key=[key], columns=columns, versions=versions)

    assert found == [f"versions: {fault}"]


def test_versions_are_of_one_dimension() -> None:
    """Both columns reach whoever reads the rows."""
    versions = dimension(versions={"valid_from": "since", "valid_to": "until"}).versions

    assert versions == Versions(valid_from="since", valid_to="until")


def test_versions_have_all_rows_of_a_key() -> None:
    """A rule for keys with several rows would contradict them; so would a row without a time."""
    versions = {"valid_from": "since"}

    assert dimension_faults(versions=versions, match="first", default={"name": "?"}) == [
        "versions: has all rows of a key already; leave match out",
    ]
    assert dimension_faults(versions=versions, default={"name": "?"}) == [
        "default: has no effect with versions: a key without a version is missing"
    ]


def test_whole_table_has_one_row_of_a_key() -> None:
    """Neither lists nor versions are held whole."""
    full = {"mode": "full"}

    assert dimension_faults(versions={"valid_from": "since"}, cache=full) == [
        "cache: mode full holds one row of a key: leave versions out"
    ]
    assert dimension_faults(match="all", cache=full) == [
        "cache: mode full holds one row of a key: leave match out"
    ]
