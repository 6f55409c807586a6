"""What messages say becomes columns, in the order of the messages."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookup_core.changelog.change_decoder import Decoded, RowChanges, TableChange
from lookup_core.changelog.gathered_changes import (
    Forms,
    GatheredChanges,
    Told,
    refuse_unnameable,
)
from lookup_core.errors import ErrorCode, InvalidRequest
from tests.lookup_core.changelog.change_messages import Told as Each
from tests.lookup_core.changelog.change_messages import schema_of, told

SCHEMA = schema_of({"id": pa.int64()}, {"name": pa.utf8(), "tier": pa.int8()})
PAIR = schema_of({"line": pa.utf8(), "number": pa.int16()}, {"tier": pa.int8()})
ANN = {"name": "Ann", "tier": 1}
NULLS = {"name": None, "tier": None}


def as_they_are(
    values: Sequence[object], forms: Sequence[Forms], field: pa.Field
) -> Sequence[object]:
    """A format whose values look as they should."""
    assert len(forms) == len(values)
    assert field.name
    return values


def gathering(*, with_rows: bool = True) -> GatheredChanges:
    """Nothing yet, for the plain schema."""
    return GatheredChanges(SCHEMA, with_rows=with_rows, rewrite=as_they_are)


def test_nothing_gathered_is_nothing() -> None:
    """Without messages there are no changes."""
    assert gathering().decoded() == Decoded([])


def test_changes_keep_their_order() -> None:
    """What is told of rows and of the table stays in order; keys may be there again."""
    gathered = gathering()

    gathered.add({"id": 1, **ANN}, Told.ROW, transaction_id=7)
    gathered.add({"id": 1}, Told.ABSENCE, transaction_id=8)
    gathered.add_table("truncated", 9)
    gathered.add({"id": 2}, Told.NOTHING)

    rows = [((1,), ANN, 7), ((1,), "gone", 8)]
    assert told(list(gathered.decoded().changes)) == [*rows, ("table", 9), ((2,), "changed", 0)]


def test_former_rows_are_not_told() -> None:
    """Of a message that is no news, only the key is told: what is now, it does not know."""
    gathered = gathering()

    for gathered.is_news, told_of_row in (
        (False, Told.ROW),
        (False, Told.ABSENCE),
        (True, Told.ROW),
    ):
        gathered.add({"id": 1, **ANN}, told_of_row)

    words = [each[1] for each in told(list(gathered.decoded().changes))]
    assert words == ["changed", "changed", ANN]


def test_rows_change_in_runs() -> None:
    """Changes of rows are one value, but for where the table changed between them."""
    gathered = gathering()

    gathered.add({"id": 1}, Told.NOTHING)
    gathered.add({"id": 2}, Told.NOTHING)
    gathered.add_table("truncated")
    gathered.add_table("again")

    kinds = [type(change) for change in gathered.decoded().changes]
    assert kinds == [RowChanges, TableChange, TableChange]


def test_columns_have_the_exact_schema() -> None:
    """Keys and rows are of the dimension's types, and what they hold is counted."""
    gathered = gathering()
    gathered.add({"id": 1, **ANN}, Told.ROW)

    decoded = gathered.decoded()

    (changes,) = decoded.changes
    assert isinstance(changes, RowChanges)
    assert (changes.keys.schema, changes.rows.schema) == (SCHEMA.key, SCHEMA.columns)
    assert decoded.nbytes == changes.keys.nbytes + changes.rows.nbytes + 4


def test_keys_only_tell_no_rows() -> None:
    """Without rows, nothing is told of a key but that it changed, also where its row is gone."""
    gathered = gathering(with_rows=False)

    gathered.add({"id": 1, **ANN}, Told.ROW)
    gathered.add({"id": 2}, Told.ABSENCE)

    changes = list(gathered.decoded().changes)
    assert told(changes) == [((1,), "changed", 0), ((2,), "changed", 0)]


def test_incomplete_rows_are_not_told() -> None:
    """A row that lacks a column, or has a wrong value in one, is not told; its key is."""
    gathered = gathering()

    gathered.add({"id": 1, "name": "Ann"}, Told.ROW)
    gathered.add({"id": 2, **ANN}, Told.ROW)
    gathered.add({"id": 3, "name": "Eve", "tier": 300}, Told.ROW)
    gathered.add({"id": 4, **NULLS}, Told.ROW)

    assert [each[1] for each in told(list(gathered.decoded().changes))] == [
        "changed",
        ANN,
        "changed",
        NULLS,
    ]


def test_unreadable_key_changes_the_table() -> None:
    """A key that is none of the dimension's could be any: its message is a fault."""
    gathered = gathering()

    for gathered.position, key in enumerate([1, "one", 2**63, 2]):
        gathered.add({"id": key}, Told.ABSENCE, transaction_id=key if key == 1 else 5)

    decoded = gathered.decoded()
    assert told(list(decoded.changes)) == [
        ((1,), "gone", 1),
        ("table", 5),
        ("table", 5),
        ((2,), "gone", 5),
    ]
    reason = "a key is not of the dimension's type (type)"
    assert decoded.faults == {1: reason, 2: reason}


def test_keys_with_nulls_are_left_out() -> None:
    """Nobody can look up a key with a NULL in it."""
    gathered = GatheredChanges(PAIR, with_rows=True, rewrite=as_they_are)

    gathered.add({"line": "A", "number": None}, Told.ABSENCE)
    gathered.add({"line": "A", "number": 3}, Told.ABSENCE)

    decoded = gathered.decoded()
    assert (told(list(decoded.changes)), decoded.faults) == ([(("A", 3), "gone", 0)], {})


def test_fault_changes_the_table() -> None:
    """After a message that cannot be decoded, any row may have changed."""
    gathered = gathering()
    gathered.position = 4

    gathered.add_fault("it is not JSON")

    assert gathered.decoded() == Decoded(
        [TableChange("it is not JSON")], faults={4: "it is not JSON"}
    )


def test_ids_are_cut_to_32_bits() -> None:
    """Of a transaction, the low half of its id is kept."""
    gathered = gathering()

    gathered.add({"id": 1}, Told.NOTHING, transaction_id=2**32 + 3)
    gathered.add_table("truncated", 2**33 + 4)

    assert told(list(gathered.decoded().changes)) == [((1,), "changed", 3), ("table", 4)]


@pytest.mark.parametrize(
    ("times", "expected"), [([5, 9, 7], 9), ([None, 3.5, True, "8", 2**63, 2], 2)]
)
def test_latest_time_is_kept(times: list[object], expected: int) -> None:
    """The source's time is the latest one that is a whole number."""
    gathered = gathering()

    for time_ms in times:
        gathered.note_time(time_ms)

    assert gathered.decoded() == Decoded([], expected)


@pytest.mark.parametrize(
    ("values", "has_key", "has_whole_key"),
    [
        ({"line": "A", "number": 3, "tier": 1}, True, True),
        ({"line": "A", "number": None}, True, False),
        ({"line": "A"}, False, False),
    ],
)
def test_key_needs_all_its_columns(
    values: Mapping[str, object], *, has_key: bool, has_whole_key: bool
) -> None:
    """A key is there if all its columns are, and whole if none of them is null."""
    gathered = GatheredChanges(PAIR, with_rows=True, rewrite=as_they_are)

    assert gathered.has_key(values) == has_key
    assert gathered.has_whole_key(values) == has_whole_key


def test_same_key_in_all_columns() -> None:
    """Keys are the same if they are in all of their columns."""
    gathered = GatheredChanges(PAIR, with_rows=True, rewrite=as_they_are)
    key = {"line": "A", "number": 3}

    assert gathered.is_same_key(key, {**key, "tier": 1})
    assert not gathered.is_same_key(key, {**key, "number": 4})


def test_unnameable_keys_are_refused() -> None:
    """A key of a type that JSON cannot name is refused, before any message."""
    with pytest.raises(InvalidRequest) as caught:
        refuse_unnameable(schema_of({"id": pa.float64()}, {}))

    assert caught.value.code is ErrorCode.KEY_TYPE


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, "bad", None]), st.sampled_from([*Told])) | st.just("table")
    )
)
def test_all_is_told_in_order(steps: list[tuple[object, Told] | str]) -> None:
    """Whatever comes between, each change is told once and at its place."""
    gathered, expected = gathering(), list[Each]()

    for transaction_id, step in enumerate(steps, start=1):
        if isinstance(step, str):
            gathered.add_table("truncated", transaction_id)
            expected.append(("table", transaction_id))
            continue
        gathered.add({"id": step[0], **ANN}, step[1], transaction_id=transaction_id)
        expected += expected_of(*step, transaction_id)

    assert told(list(gathered.decoded().changes)) == expected


def expected_of(key: object, said: Told, transaction_id: int) -> list[Each]:
    """What is to be told of one change of a row."""
    if key is None:
        return []
    if key == "bad":
        return [("table", transaction_id)]
    words = {Told.ROW: ANN, Told.ABSENCE: "gone", Told.NOTHING: "changed"}
    return [((key,), words[said], transaction_id)]
