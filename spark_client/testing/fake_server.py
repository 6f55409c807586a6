"""A sidecar in memory behind a real WebSocket on a Unix socket.

The WebSocket is the websockets library's own server: another implementation than the client's.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, unix_serve
from websockets.typing import Subprotocol

from lookup_core.errors import SidelookError
from lookup_core.protocol.frames import SUBPROTOCOL
from spark_client.testing.fake_sidecar import MemorySidecar


class MemoryServer:
    """Serves a `MemorySidecar`, and the names of its dimensions."""

    subprotocols: Sequence[Subprotocol] | None = (Subprotocol(SUBPROTOCOL),)

    def __init__(self, sidecar: MemorySidecar) -> None:
        self.sidecar = sidecar
        self.connections: list[ServerConnection] = []

    @contextmanager
    def at(self, path: Path) -> Iterator[str]:
        """The URL to reach it while it is served."""
        server = unix_serve(
            self._converse,
            str(path),
            subprotocols=self.subprotocols,
            compression=None,
            process_request=self.refusal,
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"unix://{path}"
        finally:
            for connection in self.connections:
                connection.close()
            server.shutdown()
            thread.join()

    def refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a request that opens no WebSocket."""
        if request.path == "/v1/dimensions":
            names = json.dumps({"dimensions": sorted(self.sidecar.dimensions)})
            return connection.respond(HTTPStatus.OK, names)
        return None

    def _converse(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        peer = self.sidecar.new_peer()
        try:
            for message in connection:
                assert isinstance(message, bytes)
                for reply in peer.on_message(message):
                    connection.send(reply)
                while replies := peer.more():
                    for reply in replies:
                        connection.send(reply)
        except SidelookError as error:
            connection.close(CloseCode.PROTOCOL_ERROR, str(error)[:100])
        except ConnectionClosed:
            pass  # the client is gone, as it may
