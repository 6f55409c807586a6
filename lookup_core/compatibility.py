"""Compatibility: the parts of newer Python and pyarrow releases that the core uses.

Without these, lookup_core and spark_client need no more than Python 3.10 and pyarrow 15.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

import pyarrow as pa


class TextEnum(str, Enum):
    """An enumeration whose members are texts; `StrEnum` of Python 3.11."""

    __str__ = str.__str__


def assert_never(value: NoReturn) -> NoReturn:
    """Checked by mypy: no value arrives here; `typing.assert_never` of Python 3.11."""
    message = f"unexpected {value!r}"
    raise AssertionError(message)


def joined_structs(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of one or more batches of one schema, in order; batches without columns, too."""
    structs = pa.concat_arrays([batch.to_struct_array() for batch in batches])
    joined = pa.RecordBatch.from_struct_array(structs)
    return joined.replace_schema_metadata(batches[0].schema.metadata)


# Twice as fast for small batches, but new in pyarrow 19.
concat_batches = getattr(pa, "concat_batches", joined_structs)
