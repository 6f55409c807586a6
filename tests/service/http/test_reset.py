"""A connection that is ended at once."""

import asyncio
import socket

import pytest

from service.http.delivery import reset


class Connected(asyncio.Transport):
    """A transport of this socket; notes that it was aborted."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__({"socket": connection})
        self.is_aborted = False

    def abort(self) -> None:
        """See `asyncio.Transport`."""
        self.is_aborted = True
        self.get_extra_info("socket").close()


def test_caller_hears_of_a_reset() -> None:
    """What stands in the buffers is thrown away, and the caller is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        caller = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        connection.sendall(b"unread")

        reset(Connected(connection))

        with caller, pytest.raises(ConnectionResetError):
            _read_all(caller)


def _read_all(caller: socket.socket) -> None:
    while caller.recv(6):
        pass


def test_caller_who_has_gone_is_no_fault() -> None:
    """A socket that is closed already keeps nobody from letting the transport go."""
    connection = socket.socket()
    connection.close()
    transport = Connected(connection)

    reset(transport)

    assert transport.is_aborted
