"""How long a peer may take."""

from service.stream.stream_parts import Timeouts


def test_peers_have_the_documented_time() -> None:
    """The figures are those of docs/wire_protocol.md."""
    assert Timeouts() == Timeouts(
        hello_s=10.0, describe_s=2.0, send_s=30.0, close_s=2.0, heartbeat_s=15.0
    )
