"""A server that is no backend: it accepts connections, and sends the same bytes on each."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LyingServer:
    """Accepts connections, and sends nothing until `may_lie` is set."""

    listener: socket.socket
    lie: bytes
    is_asked: threading.Event = field(default_factory=threading.Event)
    may_lie: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        """Its port of the loopback address."""
        port: int = self.listener.getsockname()[1]
        return port

    def serve(self) -> None:
        """Serve until the listener is shut down."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lie, args=(connection,), daemon=True).start()

    def _lie(self, connection: socket.socket) -> None:
        with connection, suppress(ConnectionError):  # the sidecar may have ended
            connection.recv(1024)
            self.is_asked.set()
            self.may_lie.wait()
            connection.sendall(self.lie)
            connection.recv(1024)  # the end of the connection


@contextmanager
def lying_server(lie: bytes) -> Iterator[LyingServer]:
    """A server on a free port until the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = LyingServer(listener, lie)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
