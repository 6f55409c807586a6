"""Which Arrow types may be a dimension's key.

Only types whose equality is exact and the same everywhere: in the store, in the cache, in Spark.
Not how a store's own types are read: each backend maps those itself.
"""

import pyarrow as pa
from pyarrow import types

_IS_KEY_TYPE = (
    types.is_signed_integer,
    types.is_string,
    types.is_binary,
    types.is_fixed_size_binary,
    types.is_boolean,
    types.is_date32,
    types.is_timestamp,
    types.is_decimal128,
)


def is_key_type(kind: pa.DataType) -> bool:
    """Whether keys may have this type; floating point, for one, is equal by accident only."""
    return any(is_type(kind) for is_type in _IS_KEY_TYPE)
