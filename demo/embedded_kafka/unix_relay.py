"""A port of the loopback before a Unix socket, for programs that know TCP only.

Passes bytes on as they are; the faults of a network are the business of the tests' own proxy.
"""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 65_536


@contextmanager
def unix_relay(socket_path: str) -> Iterator[int]:
    """The port that leads to the socket, in threads of its own, until the end."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as upstream:
                upstream.connect(socket_path)
                _pass_on(self.request, upstream)

    with _RelayServer(("127.0.0.1", 0), Relay) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _RelayServer(socketserver.ThreadingTCPServer):
    # A connection that nobody closes must not keep the demonstration from its end.
    daemon_threads = True
    block_on_close = False


def _pass_on(left: socket.socket, right: socket.socket) -> None:
    # A thread for each direction: both sides may have full buffers, and read again when theirs go.
    back = threading.Thread(target=_pump, args=(right, left), daemon=True)
    back.start()
    _pump(left, right)
    back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    except OSError:
        pass  # one side is gone; the other one is told below
    for each in (source, sink):
        with suppress(OSError):  # closed already
            each.shutdown(socket.SHUT_RDWR)
