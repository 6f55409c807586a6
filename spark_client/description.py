"""What the driver learns about a dimension from a sidecar: its key, the columns' exact types.

Asked by opening a channel, so that unknown dimensions, columns and wrong key types show up here
and not in the tasks.
"""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.errors import SidecarUnreachable
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.as_of import check_versions, single_columns
from spark_client.channel_session import ChannelSession
from spark_client.connections import Address, connections

ANY_KEY = pa.schema([])  # a channel that only describes


def described_columns(
    address: Address,
    dimension: str,
    *,
    columns: Sequence[str] | None,
    key: pa.Schema,
    is_as_of: bool = False,
) -> pa.Schema:
    """The columns asked for, or all of them for None; as of a time those of a single version.

    Raises InvalidRequest, BackendError or SidecarUnreachable.
    """
    names = None if columns is None else tuple(columns)
    try:
        channel = _opened(address, ChannelRequest(dimension, names, "driver", key, is_as_of))
        check_versions(channel.versions, is_as_of=is_as_of, dimension=dimension)
        if not is_as_of:
            return channel.columns
        asked = list(channel.columns)[: None if names is None else len(names)]
        return single_columns(pa.schema(asked))
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
