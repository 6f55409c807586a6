"""What the driver learns about a dimension from a sidecar: its key, the columns' exact types.

Asked by opening a channel, so that unknown dimensions, columns and wrong key types show up here
and not in the tasks.
"""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.errors import SidecarUnreachable
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.channel_session import ChannelSession
from spark_client.connections import Address, connections

ANY_KEY = pa.schema([])  # a channel that only describes


def described_columns(
    address: Address, dimension: str, *, columns: Sequence[str] | None, key: pa.Schema
) -> pa.Schema:
    """The columns asked for, or all of them for None.

    Raises InvalidRequest, BackendError or SidecarUnreachable.
    """
    names = None if columns is None else tuple(columns)
    try:
        return _opened(address, ChannelRequest(dimension, names, "driver", key)).columns
    except SidecarUnreachable as error:
        error.add_note("Where the driver has no sidecar, give schema= with the columns' types.")
        raise


def described_key(address: Address, dimension: str) -> tuple[str, ...]:
    """The names of the key's columns, in order; raises as `described_columns` does."""
    try:
        return _opened(address, ChannelRequest(dimension, (), "driver", ANY_KEY)).key
    except SidecarUnreachable as error:
        error.add_note("Where the driver has no sidecar, name the key's columns with on=.")
        raise


def _opened(address: Address, request: ChannelRequest) -> ChannelSession:
    channel = connections.to(address).open(request)
    channel.close()
    return channel  # what it was told stays
