"""A port of the loopback before a Unix socket, for programs that know TCP only.

Passes bytes on as they are; the faults of a network are the business of the tests' own proxy.
"""

import selectors
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
    other = {left: right, right: left}
    with selectors.DefaultSelector() as selector:
        for each in other:
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                try:
                    chunk = source.recv(_CHUNK_BYTES)
                    other[source].sendall(chunk)
                except ConnectionError:
                    return
                if not chunk:
                    return
