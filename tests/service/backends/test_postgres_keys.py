"""Keys on their way to asyncpg."""

from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from lookup_core.keys.key_casts import UUID_FIELD
from service.connectors.postgres.queries import key_arguments, key_order

LAST_US = 253_402_300_799_999_999


def test_keys_are_asked_in_ascending_order() -> None:
    """Neighbours in an index stand side by side, by all columns of the key."""
    keys = pa.record_batch({"a": ["b", "a", "b", "B"], "b": [1, 2, 0, 3]})

    assert key_order(keys).tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        pa.array([Decimal("2.00"), Decimal("1.00")]),
        pa.array([b"b" * 16, b"a" * 16], pa.binary(16)),
        pa.array([2, 1], pa.timestamp("us", "UTC")),
    ],
    ids=lambda values: str(values.type),
)
def test_all_kinds_of_keys_have_an_order(values: pa.Array) -> None:
    """Whatever may be a key can be sorted."""
    assert key_order(pa.record_batch([values], ["id"])).tolist() == [1, 0]


def test_keys_become_one_list_per_column() -> None:
    """The columns of a composite key are parallel lists of Python values."""
    keys = pa.record_batch({"a": [Decimal("1.50"), Decimal("2.00")], "b": [b"", b"x"]})

    assert key_arguments(keys, keys.schema) == [[Decimal("1.50"), Decimal("2.00")], [b"", b"x"]]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], "{}"), ([7], "{7}"), ([-(2**63), 0, 2**63 - 1], f"{{{-(2**63)}, 0, {2**63 - 1}}}")],
)
def test_integers_become_one_text(numbers: list[int], text: str) -> None:
    """An array of integers is written as PostgreSQL reads it."""
    keys = pa.record_batch([pa.array(numbers, pa.int64())], ["id"])

    assert key_arguments(keys, keys.schema) == [text]


def test_uuid_keys_become_uuids() -> None:
    """The sixteen bytes of a uuid key are sent as a uuid."""
    uuid = UUID("00112233-4455-6677-8899-aabbccddeeff")
    schema = pa.schema([pa.field("id", pa.binary(16), metadata=UUID_FIELD)])

    keys = pa.record_batch([pa.array([uuid.bytes, None], pa.binary(16))], ["id"])

    assert key_arguments(keys, schema) == [[uuid, None]]


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), "0001-01-01", "9999-12-31"),
        (pa.timestamp("us"), "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999"),
        (pa.timestamp("us", "UTC"), "0001-01-01 00:00:00.000000Z", "9999-12-31 23:59:59.999999Z"),
    ],
    ids=str,
)
def test_times_become_texts(kind: pa.DataType, first: str, last: str) -> None:
    """A time is sent in full; beyond the years 1 to 9999 as NULL, so that its batch goes on."""
    width = pa.int32() if kind == pa.date32() else pa.int64()
    limits = (-719_162, 2_932_896) if kind == pa.date32() else (-(10**6) * 62_135_596_800, LAST_US)
    numbers = pa.array([limits[0] - 1, limits[0], limits[1], limits[1] + 1, None], width)

    keys = pa.record_batch([numbers.cast(kind)], ["t"])
    arguments = key_arguments(keys, keys.schema)

    assert arguments == [[None, first, last, None, None]]
