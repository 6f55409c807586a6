"""PostgreSQL's arrays in their binary form, as numpy: what a column's values are sent in.

Arrays of values of one width only; what they mean is read by `postgres_blocks`.
"""

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[Any]  # of a type that is known when it runs

# As the server's `array_send` writes it, all in network byte order; then each element's length
# (-1 for NULL), and its bytes.
_HEADER = np.dtype(
    [
        ("dimensions", ">i4"),
        ("has_nulls", ">i4"),
        ("element_oid", ">u4"),
        ("size", ">i4"),
        ("first_subscript", ">i4"),
    ]
)
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """The elements of one array; zero where they are null."""

    values: Numbers  # [size] in the machine's byte order
    is_null: npt.NDArray[np.bool_] | None  # [size] None if none is
    end: int  # where in the block the array ends

    @classmethod
    def read(cls, block: bytes, kind: npt.DTypeLike) -> "BinaryArray":
        """The array that a block begins with, of elements as wide as `kind`."""
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
    """The number in the catalog of the type that the elements of a block's array have."""
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
    """What would be read at each multiple of so many bytes."""
    count = max(0, (len(block) - kind.itemsize) // unit + 1)
    return np.ndarray((count,), kind, block, strides=(unit,))


def _starts(steps: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Where so many elements start, the first at 0, each as many steps on as its place says.

    By pointer jumping (Wyllie 1979): how far each place leads is doubled with each round.
    """
    jumps = np.minimum(np.arange(len(steps)) + steps, len(steps) - 1)
    starts = np.zeros(1, np.int64)
    while len(starts) < size:
        starts = np.concatenate((starts, jumps[starts]))
        jumps = jumps[jumps]
    return starts[:size]
