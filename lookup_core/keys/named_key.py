"""A client's key fields under the dimension's own names.

Only names: whether the types fit is `key_casts`' business.
"""

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest


def named_key(given: pa.Schema, schema: DimensionSchema) -> pa.Schema:
    """The fields by name where they have the key's names, otherwise by position.

    Raises InvalidRequest (`key_type`) for another number of fields, and where a name of the key
    stands in another's place: then either reading could be meant.
    """
    names = schema.key.names
    if sorted(given.names) == sorted(names):
        return given
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
