"""The frames' meaning: which there are, and their numbers on the wire."""

from typing import get_args

from lookup_core.protocol import frames
from lookup_core.protocol.frames import Frame, FrameKind


def test_kinds_never_change_their_numbers() -> None:
    """The numbers are those of the wire protocol, client below 64, service from 65 on."""
    client = ["HELLO", "OPEN", "LOOKUP", "WATERMARK", "STATUS", "CANCEL", "CLOSE"]
    service = ["WELCOME", "OPENED", "CREDIT", "RESULT", "ERROR", "CLOSED", "GOAWAY"]

    numbers = {kind.name: kind.value for kind in FrameKind}

    assert numbers == dict(zip(client, range(1, 8), strict=True)) | dict(
        zip(service, range(65, 72), strict=True)
    )


def test_each_kind_has_its_class() -> None:
    """Each kind of frame is a class of the union; an ERROR frame is a Failure."""
    names = {kind.name.title() for kind in FrameKind} - {"Error"} | {"Failure"}

    assert {kind.__name__ for kind in get_args(Frame)} == names


def test_version_stands_in_the_subprotocol() -> None:
    """The WebSocket subprotocol names the version that this side speaks."""
    assert f"sidelook.v{frames.PROTOCOL_VERSION}" == frames.SUBPROTOCOL
