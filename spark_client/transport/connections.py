"""Connections of this process, by sidecar: the only state that outlives a task.

Spark reuses and forks Python workers; a forked child starts without connections. The import
starts nothing.
"""

import os
import threading
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lookup_core.bearer_token import FORM, parse_token
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.protocol.client_channel import ChannelRequest, ClientChannel
from spark_client.transport.connection import Connection, Timing, Transport
from spark_client.transport.endpoint import SYSTEMS_TLS, ClientTls, endpoint_of
from spark_client.transport.handshake import handshake

ANY_KEY = pa.schema([])  # the key of a channel that only reads the schema
_HANDSHAKE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class SidecarAddress:
    """URL, token file, connect timeout and TLS files of a sidecar; travels with a task."""

    url: str
    token_file: str | None = None
    connect_timeout_s: float = 60.0
    tls: ClientTls = SYSTEMS_TLS

    @property
    def attempt_timeout_s(self) -> float:
        """Seconds for one attempt to connect."""
        return min(_HANDSHAKE_TIMEOUT_S, self.connect_timeout_s)

    def token(self) -> str | None:
        """The token, if any; read from the file each time, because tokens are rotated.

        Raises InvalidRequest if the file cannot be read, or holds no token.
        """
        if self.token_file is None:
            return None
        try:
            return parse_token(Path(self.token_file).read_bytes())
        except OSError as error:
            detail = f"the token file {self.token_file} cannot be read: {error.strerror}"
            raise InvalidRequest(ErrorCode.UNAUTHORIZED, detail) from error
        except ValueError as error:
            detail = f"the token file {self.token_file} {error}; {FORM}"
            raise InvalidRequest(ErrorCode.UNAUTHORIZED, detail) from error


class Connections:
    """Connections by process and address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[tuple[int, SidecarAddress], list[Connection]] = {}

    def to(self, address: SidecarAddress) -> Connection:
        """A connection of this process with room for a channel; it connects when one is opened."""
        with self._lock:
            own = self._open.setdefault((os.getpid(), address), [])
            for connection in own:
                if connection.has_room:
                    return connection
            timing = Timing(connect_timeout_s=address.connect_timeout_s)
            own.append(Connection(partial(_connected, address), url=address.url, timing=timing))
            return own[-1]

    def forget(self) -> None:
        """In a forked child: close the descriptors of the parent's connections."""
        self._lock = threading.Lock()  # the parent may have held it
        for connection in chain.from_iterable(self._open.values()):
            connection.close_after_fork()
        self._open.clear()


connections = Connections()
os.register_at_fork(after_in_child=connections.forget)


def described_channel(
    address: SidecarAddress, request: ChannelRequest, *, is_interactive: bool = False
) -> ClientChannel:
    """A closed channel, which has the schema; raises as `Connection.open` does."""
    session = connections.to(address).open(request, is_interactive=is_interactive)
    session.close()
    return session.channel


def _connected(address: SidecarAddress) -> Transport:
    endpoint, timeout_s = endpoint_of(address.url), address.attempt_timeout_s
    return handshake(endpoint, token=address.token(), timeout_s=timeout_s, tls=address.tls)
