"""What the driver learns about a dimension from a sidecar: the columns' exact types.

Asked by opening a channel, so that unknown dimensions, columns and wrong key types show up here
and not in the tasks.
"""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.errors import SidecarUnreachable
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.connections import Address, connections

ANY_KEY = pa.schema([])  # a channel that only describes


def described_columns(
    address: Address, dimension: str, *, columns: Sequence[str] | None, key: pa.Schema
) -> pa.Schema:
    """The columns asked for, or all of them for None.

    Raises InvalidRequest, BackendError or SidecarUnreachable.
    """
    names = None if columns is None else tuple(columns)
    request = ChannelRequest(dimension, names, "driver", key)
    try:
        channel = connections.to(address).open(request)
    except SidecarUnreachable as error:
        error.add_note("Where the driver has no sidecar, give schema= with the columns' types.")
        raise
    try:
        return channel.columns
    finally:
        channel.close()
