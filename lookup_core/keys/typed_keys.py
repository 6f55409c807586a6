"""Typed keys: keys of one request in the exact types of the dimension, and casts to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name
from lookup_core.type_texts import type_text

UUID_FIELD = {b"sidelook.type": b"uuid"}  # metadata of a binary(16) key with a text form
NO_NUL_FIELD = {b"sidelook.type": b"text_without_nul"}  # PostgreSQL text cannot contain U+0000
# Of char(n), which also ignores trailing blanks: its keys have none.
NO_BLANKS_FIELD = {b"sidelook.type": b"text_without_nul_and_trailing_blanks"}
TEXT_FIELDS = (NO_NUL_FIELD, NO_BLANKS_FIELD)

UUID_PATTERN = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"

_Cast = Callable[[pa.Array, pa.Field], pa.Array]
_NO_POSITIONS = np.zeros(0, np.int32)
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_RANGES = {
    **{kind.id: range(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)) for kind in _SIGNED},
    **{kind.id: range(2**kind.bit_width) for kind in _UNSIGNED},
}
# Metadata of a key whose fields were named explicitly: an unknown name is an error. Other fields
# have the names of the records' columns, and may count by position.
EXACT_NAMES = {b"sidelook.names": b"exact"}


@dataclass(frozen=True, slots=True)
class TypedKeys:
    """n keys; those in `faults` and `nulls` are not queried, and their values are undefined."""

    columns: pa.RecordBatch  # [n] in the exact types of the key
    nulls: npt.NDArray[np.int32]  # positions of keys with a NULL part, which match no row
    faults: dict[int, ErrorCode]  # {position of an invalid key: its error}

    @property
    def size(self) -> int:
        """The number of keys, duplicates included."""
        return int(self.columns.num_rows)

    def valid_positions(self) -> npt.NDArray[np.int32]:
        """The positions of the keys that can be queried, ascending."""
        if not len(self.nulls) and not self.faults:
            return np.arange(self.size, dtype=np.int32)
        is_valid = np.ones(self.size, np.bool_)
        is_valid[self.nulls] = False
        is_valid[list(self.faults)] = False
        return np.flatnonzero(is_valid).astype(np.int32)

    def taken(self, positions: npt.NDArray[np.int32]) -> "TypedKeys":
        """The keys at these ascending positions."""
        if len(positions) == self.size:
            return self
        nulls = np.flatnonzero(np.isin(positions, self.nulls)).astype(np.int32)
        faults = {
            at: self.faults[position]
            for at, position in enumerate(positions.tolist() if self.faults else [])
            if position in self.faults
        }
        return TypedKeys(self.columns.take(pa.array(positions)), nulls, faults)

    def part(self, start: int, count: int) -> "TypedKeys":
        """At most `count` keys from `start` on."""
        if not start and count >= self.size:
            return self
        stop = start + count
        nulls = self.nulls[(self.nulls >= start) & (self.nulls < stop)] - np.int32(start)
        faults = {
            position - start: code
            for position, code in self.faults.items()
            if start <= position < stop
        }
        return TypedKeys(self.columns.slice(start, count), nulls, faults)


class KeyCasts:
    """Casts of given fields, which have the names of the dimension's key in any order.

    Raises InvalidRequest (`key_type`) unless names and types fit the key.
    """

    def __init__(self, given: pa.Schema, schema: DimensionSchema) -> None:
        self._key = schema.key
        self._casts = _casts(given, schema)
        self._places = [given.get_field_index(name) for name in schema.key.names]
        is_unchanged = all(cast is _unchanged for _, cast in self._casts)
        self._is_exact = is_unchanged and given.equals(schema.key, check_metadata=True)

    def typed_keys(self, batch: pa.RecordBatch) -> TypedKeys:
        """The keys of a batch with the given columns, whatever their names are there.

        A value that the key type cannot represent is a fault: `type`, or `invalid_text` for U+0000.
        """
        if self._is_exact and not any(column.null_count for column in batch.columns):
            return TypedKeys(batch, _NO_POSITIONS, {})  # the usual case
        given = [batch.column(place) for place in self._places]
        cast = [
            cast_column(column, field)
            for column, (field, cast_column) in zip(given, self._casts, strict=True)
        ]
        keys = pa.record_batch(cast, schema=self._key)
        if not any(column.null_count for column in cast):
            return TypedKeys(keys, _NO_POSITIONS, {})
        return TypedKeys(keys, *_nulls_and_faults(given, cast, self._key))


def typed_keys_from_arrow(batch: pa.RecordBatch, schema: DimensionSchema) -> TypedKeys:
    """The keys of a single batch; raises like `KeyCasts`."""
    return KeyCasts(batch.schema, schema).typed_keys(batch)


def _nulls_and_faults(
    given: Sequence[pa.Array], cast: Sequence[pa.Array], key: pa.Schema
) -> tuple[npt.NDArray[np.int32], dict[int, ErrorCode]]:
    nulls = np.zeros(len(given[0]), np.bool_)
    faults: dict[int, ErrorCode] = {}
    for before, after, field in zip(given, cast, key, strict=True):
        given_nulls = _null_mask(before)
        nulls |= given_nulls
        refused = np.flatnonzero(_null_mask(after) & ~given_nulls)
        code = ErrorCode.INVALID_TEXT if field.metadata in TEXT_FIELDS else ErrorCode.TYPE
        faults.update(dict.fromkeys(refused.tolist(), code))
    positions = np.flatnonzero(nulls).astype(np.int32)
    for position in positions.tolist() if faults else ():
        faults.pop(position, None)  # a key with a NULL part matches no row
    return positions, faults


def _casts(given: pa.Schema, schema: DimensionSchema) -> list[tuple[pa.Field, _Cast]]:
    if sorted(given.names) != sorted(schema.key.names):
        raise InvalidRequest(
            ErrorCode.KEY_TYPE,
            f"the key is ({', '.join(schema.key.names)}), not ({', '.join(given.names)})",
        )
    return [(field, _cast_for(given.field(field.name).type, field)) for field in schema.key]


def _cast_for(given: pa.DataType, field: pa.Field) -> _Cast:
    for fits, cast in _CASTS:
        if fits(given, field):
            return cast
    raise InvalidRequest(
        ErrorCode.KEY_TYPE,
        f'key "{field.name}" is {column_type(field)}, the given column is {type_text(given)}, which'
        f" does not convert to it exactly; cast it to {column_type(field)}",
    )


def column_type(field: pa.Field) -> str:
    """The type of a key column, for people."""
    return "uuid" if field.metadata == UUID_FIELD else type_text(field.type)


def _null_mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    if column.null_count == 0:
        return np.zeros(len(column), np.bool_)
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _unchanged(column: pa.Array, _: pa.Field) -> pa.Array:
    return column


def _widened(column: pa.Array, field: pa.Field) -> pa.Array:
    return column.cast(field.type)


def _narrowed(column: pa.Array, field: pa.Field) -> pa.Array:
    given, to = integer_range(column.type), integer_range(field.type)
    low = pa.scalar(max(given.start, to.start), column.type)
    high = pa.scalar(min(given.stop, to.stop) - 1, column.type)
    fits = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    return pc.if_else(fits, column, pa.scalar(None, column.type)).cast(field.type)


def _text_without_nul(column: pa.Array, field: pa.Field) -> pa.Array:
    text = column.cast(field.type)
    if field.metadata == NO_BLANKS_FIELD:
        text = pc.ascii_rtrim(text, " ")  # texts of Spark may be no UTF-8
    has_nul = pc.match_substring(text, "\0")
    return pc.if_else(has_nul, None, text) if pc.any(has_nul).as_py() else text


def _uuid_from_text(column: pa.Array, field: pa.Field) -> pa.Array:
    is_uuid = pc.match_substring_regex(column, UUID_PATTERN).fill_null(fill_value=False)
    digits = pc.replace_substring(column.filter(is_uuid), "-", "").cast(pa.binary())
    packed = bytes.fromhex(b"".join(digits.to_pylist()).decode())
    parsed = pa.FixedSizeBinaryArray.from_buffers(
        field.type, len(digits), [None, pa.py_buffer(packed)]
    )
    order = np.cumsum(is_uuid.to_numpy(zero_copy_only=False)) - 1
    return parsed.take(pa.array(order, mask=~is_uuid.to_numpy(zero_copy_only=False)))


def _to_microseconds(column: pa.Array, field: pa.Field) -> pa.Array:
    rounded = column.cast(field.type, safe=False)
    is_exact = pc.equal(rounded.cast(column.type, safe=False), column)
    return pc.if_else(is_exact, rounded, pa.scalar(None, field.type))


def _to_decimal(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid:
        return pa.array([_decimal_or_none(value, field.type) for value in column], field.type)


def _decimal_or_none(value: pa.Scalar, to: pa.DataType) -> pa.Scalar | None:
    try:
        return value.cast(to)
    except pa.ArrowInvalid:
        return None


def _is_wider_integer(given: pa.DataType, field: pa.Field) -> bool:
    values, wider = integer_range(given), integer_range(field.type)
    return bool(values) and wider.start <= values.start and values.stop <= wider.stop


def _is_text(given: pa.DataType) -> bool:
    return bool(types.is_string(given) or types.is_large_string(given))


def _is_bytes(given: pa.DataType) -> bool:
    return bool(types.is_binary(given) or types.is_large_binary(given))


def _are_timestamps_alike(given: pa.DataType, field: pa.Field) -> bool:
    both = types.is_timestamp(given) and types.is_timestamp(field.type)
    return bool(both and (given.tz is None) == (field.type.tz is None))


_CASTS: tuple[tuple[Callable[[pa.DataType, pa.Field], bool], _Cast], ...] = (
    (lambda given, field: field.metadata == UUID_FIELD and _is_text(given), _uuid_from_text),
    (lambda given, field: field.metadata in TEXT_FIELDS and _is_text(given), _text_without_nul),
    (lambda given, field: given == field.type, _unchanged),
    (_is_wider_integer, _widened),
    (lambda given, field: types.is_integer(given) and types.is_integer(field.type), _narrowed),
    (lambda given, field: _is_text(given) and _is_text(field.type), _widened),
    (lambda given, field: _is_bytes(given) and _is_bytes(field.type), _widened),
    (_are_timestamps_alike, _to_microseconds),
    (lambda given, field: types.is_decimal(given) and types.is_decimal(field.type), _to_decimal),
)


def integer_range(kind: pa.DataType) -> range:
    """The values of an integer type; empty for any other type."""
    return _RANGES.get(kind.id, range(0))


def named_key(given: pa.Schema, schema: DimensionSchema) -> pa.Schema:
    """The fields by exact names, otherwise by position.

    Raises InvalidRequest (`key_type`) for another number of fields, for an unknown exact name, and
    for a name of the key at another position, which is ambiguous.
    """
    names = schema.key.names
    if given.metadata == EXACT_NAMES:
        if sorted(given.names) == sorted(names):
            return given
        wrong = next((name for name in given.names if name not in names), None)
        lacking = ", ".join(name for name in names if name not in given.names)
        hint = f"; on= lacks {lacking}" if wrong is None else nearest_name(wrong, names)
        raise _other_key(given, names, hint)
    is_ambiguous = any(
        name in names and name != own for name, own in zip(given.names, names, strict=False)
    )
    if len(given) != len(names):
        hint = f"; give all {len(names)} in this order, in on= or as arguments of the function"
        raise _other_key(given, names, hint)
    if is_ambiguous:
        raise _other_key(given, names, "; the order is unclear: name the key column of each in on=")
    return pa.schema([field.with_name(name) for field, name in zip(given, names, strict=True)])


def _other_key(given: pa.Schema, names: list[str], hint: str) -> InvalidRequest:
    detail = f"the key is ({', '.join(names)}), not ({', '.join(given.names)}){hint}"
    return InvalidRequest(ErrorCode.KEY_TYPE, detail)
