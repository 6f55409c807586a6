"""Typed keys: the keys of one request in the dimension's exact types, with their faults."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name


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


# Metadata of a key whose fields were named explicitly: an unknown name is an error. Other fields
# have the names of the records' columns, and may count by position.
EXACT_NAMES = {b"sidelook.names": b"exact"}


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
