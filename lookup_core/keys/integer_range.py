"""Which whole numbers a type of Arrow's can hold.

Looked up rather than asked of Arrow, which takes a microsecond for each value of a request.
"""

import pyarrow as pa

_NONE = range(0)
_SIGNED = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_RANGES = {
    **{kind.id: range(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1)) for kind in _SIGNED},
    **{kind.id: range(2**kind.bit_width) for kind in _UNSIGNED},
}


def integer_range(kind: pa.DataType) -> range:
    """All of them; none for a type that is not one of whole numbers."""
    return _RANGES.get(kind.id, _NONE)
