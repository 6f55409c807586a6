"""Which field of a client's key is which of the dimension's."""

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import EXACT_NAMES, named_key

WEATHER = DimensionSchema(
    pa.schema({"origin": pa.utf8(), "time_hour": pa.int64()}), pa.schema({"wind": pa.float64()})
)


def key(*names: str) -> pa.Schema:
    """Fields whose types tell where they stood."""
    kinds = (pa.int8(), pa.int16(), pa.int32())
    return pa.schema(list(zip(names, kinds, strict=False)))


@pytest.mark.parametrize("names", [("origin", "time_hour"), ("time_hour", "origin")])
def test_own_names_count_in_any_order(names: tuple[str, str]) -> None:
    """Fields with the key's names are what they are called."""
    assert named_key(key(*names), WEATHER) == key(*names)


@pytest.mark.parametrize("names", [("a", "b"), ("origin", "b"), ("a", "time_hour"), ("a", "a")])
def test_other_names_count_by_position(names: tuple[str, str]) -> None:
    """The first field is the first of the key, whatever its name; the types stay."""
    assert named_key(key(*names), WEATHER) == key("origin", "time_hour")


@pytest.mark.parametrize(
    "names",
    [("a",), ("origin",), ("a", "b", "c"), ("time_hour", "b"), ("a", "origin"), ()],
)
def test_what_could_be_meant_otherwise_is_refused(names: tuple[str, ...]) -> None:
    """Another number of fields, or a name of the key in another's place, is an error."""
    with pytest.raises(InvalidRequest) as caught:
        named_key(key(*names), WEATHER)

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert caught.value.detail == (
        f"the key is (origin, time_hour), not ({', '.join(names)}); say which column is which"
    )


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (("origan", "time_hour"), "; did you mean origin?"),
        (("a", "b"), "; there is origin, time_hour"),
        (("origin", "origin"), ""),
    ],
)
def test_wrong_exact_name_never_counts_by_position(names: tuple[str, ...], hint: str) -> None:
    """Where somebody named the key's fields, a misspelt name is an error and not a place."""
    with pytest.raises(InvalidRequest) as caught:
        named_key(key(*names).with_metadata(EXACT_NAMES), WEATHER)

    assert caught.value.code is ErrorCode.KEY_TYPE
    assert caught.value.detail == (
        f"the key is (origin, time_hour), not ({', '.join(names)}){hint}"
    )
