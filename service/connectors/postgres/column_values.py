"""Values that arrive in another form than their Arrow type: arrays, JSON documents, decimals."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.changelog.json_column import UNUSABLE, exact_json, json_column
from lookup_core.errors import BackendError, ErrorCode

Positions: TypeAlias = npt.NDArray[np.intp]
# {attribute of a composite type: its own attributes; none of a plain value, None of a document}
Attributes: TypeAlias = Mapping[str, "Attributes | None"]
# NaN, and times beyond the years 1 to 9999. Next to these years, only UTC tells: no match.
_NULL_IN_COLUMNS = re.compile(
    r"NaN|-?infinity|(?!10000-01-01T.*\+(?!00:00))\d{5,}-.*|(?!0001-12-31T.*-).* BC"
)
INVALID_TEXT = (
    "a text of a row is invalid in the encoding of the database, or has no equal in UTF-8; recode "
    "it, or store it as bytea"
)
_EPOCH_DAYS = 10_957  # from 1970 to PostgreSQL's epoch, 2000
_EPOCH_US = _EPOCH_DAYS * 86_400_000_000
# Years 1 to 9999, without infinite times: ISO 8601 texts of other years need signs and more digits.
DAYS = (-719_162, 2_932_896)
MICROSECONDS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
# PostgreSQL's `array_send`, in network byte order: the header, size and first subscript of each
# dimension, then the elements. Each is a length, -1 for NULL, and its bytes.
_HEADER_BYTES, _DIMENSION_BYTES, _LENGTH_BYTES = 12, 8, 4
_EMPTY_ARRAY = b"\0" * _HEADER_BYTES
_FEW = 8  # arrays: below, one element after the other is faster than numpy
Numbers: TypeAlias = npt.NDArray[Any]  # their type is known at run time
# The server's `array_send`, in network byte order. The elements follow: each is a length, -1 for
# NULL, and its bytes.
_FIELDS = ("dimensions", "has_nulls", "element_oid", "size", "first_subscript")
_HEADER = np.dtype([(name, ">u4") for name in _FIELDS])


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """n values of a column; null where they do not fit its type."""

    values: pa.Array  # [n]
    # The positions of values that the type cannot hold exactly.
    unfit: Positions = field(default_factory=lambda: np.zeros(0, np.intp))


Decode: TypeAlias = Callable[[pa.Array], DecodedColumn]


def exact_decimals(texts: pa.StringArray, kind: pa.DataType) -> DecodedColumn:
    """Decimals from texts of numeric; NaN becomes null."""
    # Not by Arrow's checks: long fractions abort the process in pyarrow 26.
    whole, scale = kind.precision - kind.scale, kind.scale
    texts = pc.if_else(pc.equal(texts, "NaN"), None, texts)
    fits = pc.match_substring_regex(texts, rf"^-?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{scale}}}0*)?$")
    surplus, kept = (rf"(\.[0-9]{{{scale}}})0+$", r"\1") if scale else (r"\.0*$", "")
    plain = pc.replace_substring_regex(pc.if_else(fits, texts, None), surplus, kept)
    return DecodedColumn(plain.cast(kind), _which(pc.invert(fits)))


def parsed_json(
    texts: pa.StringArray, kind: pa.DataType, *, attributes: Attributes | None = None
) -> DecodedColumn:
    """Values of JSON documents; a document with another type in any place does not fit.

    With the attributes of a composite type, values that lack a wanted one do not fit. Times
    beyond the calendar and NaN are null, as in columns.
    """
    documents = [None if text is None else _document(text) for text in texts.to_pylist()]
    if attributes is not None:
        documents = [_of_composite(each, kind, attributes) for each in documents]
    column = json_column(documents, pa.field("", kind))
    return DecodedColumn(column.values, column.unusable)


def _document(text: str) -> object:
    try:
        return exact_json(text)
    except ValueError:  # more levels than Python reads
        return UNUSABLE


def _of_composite(document: object, kind: pa.DataType, attributes: Attributes | None) -> object:
    """The value with the wanted attributes; absent ones are UNUSABLE."""
    if attributes is None:
        return document
    if isinstance(document, list) and types.is_list(kind):
        return [_of_composite(each, kind.value_type, attributes) for each in document]
    if isinstance(document, dict) and types.is_struct(kind):
        fields = (kind.field(at) for at in range(kind.num_fields))
        return {
            each.name: _of_composite(
                document.get(each.name, UNUSABLE), each.type, attributes.get(each.name)
            )
            for each in fields
        }
    has_null = types.is_temporal(kind) or types.is_decimal(kind)
    is_null = has_null and isinstance(document, str) and _NULL_IN_COLUMNS.fullmatch(document)
    return None if is_null else document


def is_readable_as(wanted: pa.DataType, attributes: Attributes | None) -> bool:
    """Whether values with these attributes have all that is wanted, in a form that is exact."""
    if attributes is None:
        return True
    if types.is_list(wanted):
        return is_readable_as(wanted.value_type, attributes)
    if types.is_struct(wanted):
        fields = (wanted.field(at) for at in range(wanted.num_fields))
        return all(
            each.name in attributes and is_readable_as(each.type, attributes[each.name])
            for each in fields
        )
    return not attributes and not types.is_binary(wanted)


def listed_attributes(attributes: Attributes) -> str:
    """The names of the attributes; those within another one in brackets."""
    return ", ".join(
        f"{name} ({listed_attributes(within)})" if within else name
        for name, within in attributes.items()
    )


def _which(mask: pa.BooleanArray) -> Positions:
    return np.flatnonzero(mask.fill_null(fill_value=False).to_numpy(zero_copy_only=False))


def checked_text(values: pa.BinaryArray) -> pa.StringArray:
    """The bytes as text; raises BackendError `value_rejected` if they are not UTF-8."""
    text = values.view(pa.utf8())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid as error:
        raise BackendError(ErrorCode.VALUE_REJECTED, INVALID_TEXT) from error
    return text


@dataclass(frozen=True, slots=True)
class Element:
    """Elements of one width in a binary array."""

    type: pa.DataType
    numbers: npt.DTypeLike
    epoch: int = 0


# {oid of the element type, the same on every server: its values}
ELEMENTS = {
    16: Element(pa.bool_(), np.bool_),
    20: Element(pa.int64(), np.int64),
    21: Element(pa.int16(), np.int16),
    23: Element(pa.int32(), np.int32),
    700: Element(pa.float32(), np.float32),
    701: Element(pa.float64(), np.float64),
    1082: Element(pa.date32(), np.int32, _EPOCH_DAYS),
    1114: Element(pa.timestamp("us"), np.int64, _EPOCH_US),
    1184: Element(pa.timestamp("us", "UTC"), np.int64, _EPOCH_US),
}
_BY_TYPE = {element.type: element for element in ELEMENTS.values()}


def lists_of_arrays(arrays: pa.BinaryArray, element: pa.DataType, decode: Decode) -> DecodedColumn:
    """Lists from the binary forms of arrays; one with several dimensions does not fit.

    `decode` makes values of the element type, which has no fixed width, from their bytes. Raises
    ValueError for malformed bytes.
    """
    arrays.validate(full=True)
    present = arrays.fill_null(_EMPTY_ARRAY)
    _, offsets, content = present.buffers()
    starts = np.frombuffer(offsets, np.int32)[present.offset :][: len(arrays)].astype(np.int64)
    try:
        words = _overlapping(content, ">i4")
        dimensions = words[starts]
        is_one = dimensions == 1
        sizes = np.zeros(len(arrays), np.int64)
        sizes[is_one] = words[starts[is_one] + _HEADER_BYTES]
        if sizes.min(initial=0) < 0 or sizes.sum() * _LENGTH_BYTES > content.size:
            raise ValueError("an array has more elements than bytes")
        places = _elements(words, starts + (_HEADER_BYTES + _DIMENSION_BYTES), sizes)
        fixed = _BY_TYPE.get(element)
        values = (
            decode(_variable(content, places))
            if fixed is None
            else DecodedColumn(_fixed(content, places, fixed))
        )
    except IndexError as error:
        raise ValueError("an array ends early") from error
    ends = np.append(0, np.cumsum(sizes))
    is_unfit = dimensions > 1
    is_unfit[np.searchsorted(ends, values.unfit, "right") - 1] = True
    is_null = pa.array(is_unfit | arrays.is_null().to_numpy(zero_copy_only=False))
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values.values, mask=is_null)
    return DecodedColumn(lists, np.flatnonzero(is_unfit))


def _overlapping(content: pa.Buffer, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """The value at each byte."""
    width = np.dtype(kind).itemsize
    return np.ndarray((max(0, content.size - width + 1),), kind, content, strides=(1,))


@dataclass(frozen=True, slots=True)
class _Places:
    """The bytes of n elements."""

    starts: Positions
    lengths: Positions  # -1 for NULL


def _elements(words: npt.NDArray[np.int32], at: Positions, sizes: Positions) -> _Places:
    """The places of the elements of arrays; `at`: of the first of each, its length included."""
    ends = np.cumsum(sizes)
    starts, lengths = np.zeros((2, int(sizes.sum())), np.int64)
    place, end = ends - sizes, ends
    while (is_open := place < end).sum() > _FEW:  # the next element of all arrays at once
        at, place, end = at[is_open], place[is_open], end[is_open]
        lengths[place], starts[place] = words[at], at + _LENGTH_BYTES
        at = starts[place] + np.maximum(lengths[place], 0)
        place = place + 1
    rest = (each[is_open].tolist() for each in (at, place, end))
    for one, first, stop in zip(*rest, strict=True):
        position = one
        for number in range(first, stop):
            length = words.item(position)
            lengths[number], starts[number] = length, position + _LENGTH_BYTES
            position += _LENGTH_BYTES + max(length, 0)
    return _Places(starts, lengths)


def _fixed(content: pa.Buffer, places: _Places, kind: Element) -> pa.Array:
    starts, lengths = places.starts, places.lengths
    numbers = np.dtype(kind.numbers)
    is_null = lengths < 0
    if (lengths[~is_null] != numbers.itemsize).any():
        raise ValueError("an element has another width than its type")
    values = np.zeros(len(starts), numbers)
    values[~is_null] = _overlapping(content, numbers.newbyteorder(">"))[starts[~is_null]]
    if kind.epoch:
        values = values + numbers.type(kind.epoch)  # wraps for infinities, which are left out
        low, high = DAYS if types.is_date32(kind.type) else MICROSECONDS
        is_null |= (values < low) | (values > high)
    return pa.array(values, mask=is_null).view(kind.type)


def _variable(content: pa.Buffer, places: _Places) -> pa.BinaryArray:
    starts, lengths = places.starts, places.lengths
    # Every second value of an array whose other values are the bytes between the elements.
    size, ends = len(starts), starts + np.maximum(lengths, 0)
    offsets = np.zeros(2 * size + 1, np.int32)
    offsets[:-1:2], offsets[1::2] = starts, ends
    offsets[-1] = ends.max(initial=0)
    spread = pa.Array.from_buffers(pa.binary(), 2 * size, [None, pa.py_buffer(offsets), content])
    spread.validate(full=True)
    return spread.take(pa.array(np.arange(0, 2 * size, 2), mask=lengths < 0))


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """The elements of one array of values of one width."""

    values: Numbers  # [size] in the machine's byte order; zero where null
    is_null: npt.NDArray[np.bool_] | None  # [size] None without nulls
    end: int  # offset of the array's end in the block

    @classmethod
    def read(cls, block: bytes, kind: npt.DTypeLike) -> "BinaryArray":
        """The array at the start of the block; its elements have the width of `kind`."""
        element = np.dtype(kind)
        header = np.frombuffer(block, _HEADER, count=1)[0]
        size = int(header["size"])
        if header["has_nulls"]:
            values, is_null = _with_nulls(block, element, size)
            present = size - int(is_null.sum())
            end = _HEADER.itemsize + size * _LENGTH_BYTES + present * element.itemsize
            return cls(values, is_null, end)
        pairs = np.dtype([("length", ">i4"), ("value", element.newbyteorder(">"))])
        found = np.frombuffer(block, pairs, count=size, offset=_HEADER.itemsize)
        end = _HEADER.itemsize + size * pairs.itemsize
        return cls(found["value"].astype(element), None, end)


def element_oid(block: bytes) -> int:
    """The oid of the element type of the block's array."""
    return int(np.frombuffer(block, _HEADER, count=1)["element_oid"][0])


def _with_nulls(
    block: bytes, element: np.dtype[Any], size: int
) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    bytes_each = _LENGTH_BYTES + element.itemsize
    rest = block[_HEADER.itemsize : _HEADER.itemsize + size * bytes_each]
    unit = math.gcd(_LENGTH_BYTES, element.itemsize)
    lengths = _at_each_unit(rest, np.dtype(">i4"), unit)
    steps = np.where(lengths < 0, _LENGTH_BYTES, bytes_each) // unit
    starts = _starts(steps, size)
    is_null = lengths[starts] < 0
    values = np.zeros(size, element)
    at = _at_each_unit(rest[_LENGTH_BYTES:], element.newbyteorder(">"), unit)
    values[~is_null] = at[starts[~is_null]]
    return values, is_null


def _at_each_unit(block: bytes, kind: np.dtype[Any], unit: int) -> Numbers:
    """The value at each multiple of `unit` bytes; values overlap."""
    count = max(0, (len(block) - kind.itemsize) // unit + 1)
    return np.ndarray((count,), kind, block, strides=(unit,))


def _starts(steps: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The start of each of `size` elements; an element that starts at i ends at i + steps[i].

    By pointer jumping (Wyllie 1979): each round doubles the length of the jumps.
    """
    jumps = np.minimum(np.arange(len(steps)) + steps, len(steps) - 1)
    starts = np.zeros(1, np.int64)
    while len(starts) < size:
        starts = np.concatenate((starts, jumps[starts]))
        jumps = jumps[jumps]
    return starts[:size]
