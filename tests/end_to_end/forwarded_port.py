"""Another port of the loopback that leads to a sidecar's, as `kubectl port-forward` makes one.

Passes bytes as they are: whoever asks has named the other port as the Host.
"""

import select
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

LOOPBACK = "127.0.0.1"
_CHUNK_BYTES = 65_536


class _Passage(socketserver.BaseRequestHandler):
    """One connection, until either side ends it."""

    server: "_Forwarding"

    def handle(self) -> None:
        here: socket.socket = self.request
        with (
            suppress(ConnectionError),
            socket.create_connection((LOOPBACK, self.server.target)) as there,
        ):
            other = {here: there, there: here}
            while True:
                for each in select.select(list(other), [], [])[0]:
                    chunk = each.recv(_CHUNK_BYTES)
                    if not chunk:
                        return
                    other[each].sendall(chunk)


class _Forwarding(socketserver.ThreadingTCPServer):
    """Listens; its closing waits for the passages."""

    allow_reuse_address = True

    def __init__(self, port: int, target: int) -> None:
        super().__init__((LOOPBACK, port), _Passage)
        self.target = target
        self.here: set[socket.socket] = set()

    def verify_request(self, request: object, client_address: object) -> bool:
        """All are let in; noted here, where `shutdown` waits for it, lest `cut` overlooks one."""
        assert isinstance(request, socket.socket)
        self.here.add(request)
        return super().verify_request(request, client_address)

    def cut(self) -> None:
        """End all connections."""
        for each in list(self.here):
            with suppress(OSError):  # ended by its peer
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def forwarded_port(target: int, port: int) -> Iterator[None]:
    """The port leads to `target` until the block ends, and then refuses connections."""
    with ExitStack() as stack:
        server = stack.enter_context(_Forwarding(port, target))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.cut)
        stack.callback(server.shutdown)
        yield
