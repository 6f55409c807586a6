"""A client's key fields under the dimension's own names.

Only names: whether the types fit is `key_casts`' business.
"""

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.nearest_name import nearest_name

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
