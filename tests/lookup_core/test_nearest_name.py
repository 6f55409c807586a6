"""The hint names one near name, or else what there is."""

from lookup_core.errors import nearest_name


def test_near_name_is_suggested() -> None:
    """A misspelling leads to the name that was meant, in the spelling of the store."""
    assert nearest_name("custmer", ["orders", "Customer"]) == "; did you mean Customer?"


def test_case_alone_is_near() -> None:
    """A name that differs in case only is near, whatever its length."""
    assert nearest_name("ID", ["id"]) == "; did you mean id?"


def test_far_name_lists_what_there_is() -> None:
    """Nothing near: all the names are listed."""
    assert nearest_name("zzz", ["id", "name"]) == "; there is id, name"


def test_long_lists_are_cut() -> None:
    """A store of many names does not make a message of many names."""
    hint = nearest_name("zzz", [f"column_{number}" for number in range(500)])

    assert hint.endswith("column_19, …")


def test_empty_store_has_no_hint() -> None:
    """Where there is no name at all, nothing is appended."""
    assert nearest_name("zzz", []) == ""
