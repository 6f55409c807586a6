"""Keys that may be asked, and those that never reach a backend."""

from lookup_core.dimension.local_resolver import askable_keys, unaskable_answers
from tests.lookup_core.dimension.dimension_script import FAULTY, told, typed


def test_nulls_and_faults_are_not_asked() -> None:
    """Only whole keys of the right type are asked, at the positions where they stand."""
    assert askable_keys(typed(7, None, 8, FAULTY, 7)).tolist() == [0, 2, 4]


def test_unaskable_keys_are_answered() -> None:
    """A NULL matches nothing, and a faulty key is an error of its own."""
    keys = typed(7, None, FAULTY, None)

    assert told(list(unaskable_answers(keys))) == {1: "missing", 2: "error type", 3: "missing"}


def test_askable_keys_get_no_answer() -> None:
    """Where all may be asked there is nothing to say yet."""
    assert list(unaskable_answers(typed(7, 8))) == []
    assert askable_keys(typed()).tolist() == []
