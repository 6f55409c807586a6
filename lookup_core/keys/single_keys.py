"""One key in canonical form without any array, whose making takes longer than all else for one.

Says of a key what `canonical_keys` says of a batch. Keys of several columns, and of other types
than whole numbers and texts, are left to it.
"""

import hashlib
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import GOLDEN_GAMMA, LONG_BYTES, MIXERS
from lookup_core.keys.key_casts import NO_NUL_FIELD, integer_range

_WORD = 2**64 - 1


@dataclass(frozen=True, slots=True)
class SingleKey:
    """A key of one column; `part` is None where the hash alone is the key."""

    hash: int
    part: bytes | None  # canonical bytes


class SingleKeys:
    """Makes the keys of one dimension; `seed` as for `canonical_keys`."""

    def __init__(self, schema: DimensionSchema, *, seed: int) -> None:
        field = schema.key.field(0) if len(schema.key) == 1 else pa.field("", pa.null())
        self._seed = seed
        self._numbers = integer_range(field.type)
        self._is_text = types.is_string(field.type)
        self._may_have_nul = field.metadata != NO_NUL_FIELD

    def of(self, value: object) -> SingleKey | None:
        """The key with this value, None where it is not exactly of a type that is known here."""
        if type(value) is int and value in self._numbers:
            return SingleKey(_mixed((value ^ self._seed) & _WORD), None)
        if self._is_text and isinstance(value, str):
            return self._of_text(value)
        return None

    def _of_text(self, text: str) -> SingleKey | None:
        try:
            part = text.encode()
        except UnicodeEncodeError:
            return None
        if b"\0" in part and not self._may_have_nul:
            return None
        return SingleKey(_hash(part, self._seed), part)


def _hash(part: bytes, seed: int) -> int:
    if len(part) > LONG_BYTES:
        digest = hashlib.blake2b(part, digest_size=8, key=seed.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")
    mixed = _mixed(len(part) + seed & _WORD)
    for start in range(0, len(part), 8):
        word = int.from_bytes(part[start : start + 8], "little")
        mixed = _mixed((mixed + GOLDEN_GAMMA & _WORD) ^ word)
    return mixed


def _mixed(value: int) -> int:
    first, second = MIXERS
    value = (value ^ value >> 30) * first & _WORD
    value = (value ^ value >> 27) * second & _WORD
    return value ^ value >> 31
