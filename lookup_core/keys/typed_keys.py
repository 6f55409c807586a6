"""Keys of one request in the dimension's exact types, with an error for each invalid key."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest, nearest_name


@dataclass(frozen=True, slots=True)
class TypedKeys:
    """n keys; those at `faults` and at `nulls` are not to be asked, whatever stands there."""

    columns: pa.RecordBatch  # [n] the key's fields, exact types; null where null or faulty
    nulls: npt.NDArray[np.int32]  # positions of keys with any NULL part: they match nothing
    faults: dict[int, ErrorCode]  # {position: why this key can not be asked}

    @property
    def size(self) -> int:
        """How many keys there are, duplicates included."""
        return int(self.columns.num_rows)

    def taken(self, positions: npt.NDArray[np.int32]) -> "TypedKeys":
        """The keys at these positions, which ascend."""
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
        """So many of the keys from `start` on, or as many as there are."""
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


# Metadata of a key whose fields somebody named after the dimension's: then a wrong name is an
# error, where the records' own names would count by position.
EXACT_NAMES = {b"sidelook.names": b"exact"}


def named_key(given: pa.Schema, schema: DimensionSchema) -> pa.Schema:
    """The fields by name where they have the key's names, otherwise by position.

    Raises InvalidRequest (`key_type`) for another number of fields, for a wrong name among exact
    ones, and where a name of the key stands in another's place: either reading could be meant.
    """
    names = schema.key.names
    if sorted(given.names) == sorted(names):
        return given
    if given.metadata == EXACT_NAMES:
        raise _wrong_name(given.names, names)
    is_ambiguous = any(
        name in names and name != own for name, own in zip(given.names, names, strict=False)
    )
    if len(given) != len(names) or is_ambiguous:
        raise InvalidRequest(
            ErrorCode.KEY_TYPE,
            f"the key is ({', '.join(names)}), not ({', '.join(given.names)}); "
            "say which column is which",
        )
    return pa.schema([field.with_name(name) for field, name in zip(given, names, strict=True)])


def _wrong_name(given: list[str], names: list[str]) -> InvalidRequest:
    wrong = next((name for name in given if name not in names), None)
    detail = f"the key is ({', '.join(names)}), not ({', '.join(given)})"
    hint = "" if wrong is None else nearest_name(wrong, names)
    return InvalidRequest(ErrorCode.KEY_TYPE, detail + hint)
