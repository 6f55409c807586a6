"""The connections of a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lookup_core.errors import InvalidRequest
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.fake_sidecar import FakeSidecar
from spark_client.transport.connections import Address, Connections, connections
from tests.spark_client.fake_server import FakeServer
from tests.spark_client.partition import DIMENSIONS
from tests.spark_client.test_channel_session import KEY

REQUEST = ChannelRequest("customers", None, "a test", KEY)


def test_one_connection_for_each_address() -> None:
    """Tasks of a worker share the connection to the same sidecar."""
    own = Connections()
    here, there = Address("unix:///a"), Address("unix:///b")

    assert own.to(here) is own.to(Address("unix:///a"))
    assert own.to(here) is not own.to(there)


def test_connection_is_real(tmp_path: Path) -> None:
    """An address leads to an open channel, with the token that its file holds."""
    server = FakeServer(FakeSidecar(DIMENSIONS))
    token = tmp_path / "token"
    token.write_text("secret\n")

    with server.at(tmp_path / "s.sock") as url:
        channel = Connections().to(Address(url, str(token), 5.0)).open(REQUEST)
        channel.close()

    assert server.requests[0].headers["Authorization"] == "Bearer secret"


def test_unreadable_token_file_is_named(tmp_path: Path) -> None:
    """A missing token file is an error at once, not a sidecar that is waited for."""
    address = Address(f"unix://{tmp_path}/s.sock", str(tmp_path / "none"), 60.0)

    with pytest.raises(InvalidRequest, match="none cannot be read: No such file"):
        Connections().to(address).open(REQUEST)


def test_forked_child_starts_without_any(tmp_path: Path) -> None:
    """A child has no connection of its parent's, and the parent's goes on."""
    server = FakeServer(FakeSidecar(DIMENSIONS))

    with server.at(tmp_path / "s.sock") as url:
        connection = connections.to(Address(url))
        channel = connection.open(REQUEST)
        child = os.fork()
        if child == 0:
            os._exit(0 if connections.to(Address(url)) is not connection else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        connection.open(REQUEST).close()
        channel.close()

    assert len(server.connections) == 1


def test_import_starts_nothing() -> None:
    """No thread and no socket come from importing the package."""
    program = (
        "import socket, threading\n"
        "made = []\n"
        "class Counted(socket.socket):\n"
        "    def __init__(self, *arguments, **options):\n"
        "        made.append(arguments)\n"
        "        super().__init__(*arguments, **options)\n"
        "socket.socket = Counted\n"
        "import spark_client\n"
        "spark_client.Sidecar('unix:///nowhere').lookup_join('d', on='k')\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not made, made\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    subprocess.run([sys.executable, "-c", program], check=True, env=environ)
