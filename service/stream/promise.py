"""What a peer was told of a dimension when it opened its channel, held against what is true now.

Knows schemas only; whoever breaks the promise is told by whoever asks.
"""

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.keys.key_casts import KeyCasts


class Promise:
    """Key and columns of one channel; `key` has the fields as the peer sends them."""

    def __init__(self, key: pa.Schema, promised: DimensionSchema) -> None:
        self.columns = tuple(promised.columns.names)
        self._key = key
        self._promised = promised
        self._kept: tuple[DimensionSchema, KeyCasts] | None = None  # by the schema seen last

    def casts(self, schema: DimensionSchema) -> KeyCasts:
        """How the peer's keys become those of this schema, if it keeps the promise.

        Raises BackendError (`schema_changed`).
        """
        if self._kept is None or self._kept[0] is not schema:
            if not schema.still_offers(self._promised):
                detail = "the dimension has other columns since the channel was opened"
                raise BackendError(ErrorCode.SCHEMA_CHANGED, detail)
            self._kept = (schema, KeyCasts(self._key, schema))
        return self._kept[1]
