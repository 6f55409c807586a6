"""Why a connection ends, in the words of a WebSocket: a close code and a reason.

Says it only; what is freed then is the connection's business.
"""

from dataclasses import dataclass

import structlog
from aiohttp import WSCloseCode

from lookup_core.errors import ProtocolViolation

log = structlog.get_logger()

_MAX_REASON_BYTES = 120  # a close frame holds 123


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """What the peer is told."""

    code: WSCloseCode
    reason: str = ""

    @property
    def message(self) -> bytes:
        """The reason as it fits a close frame, cut between characters: it must be UTF-8."""
        return self.reason.encode()[:_MAX_REASON_BYTES].decode(errors="ignore").encode()


class ConnectionEnded(Exception):
    """Never leaves the tasks of one connection."""

    def __init__(self, code: WSCloseCode, reason: str = "") -> None:
        super().__init__(reason)
        self.end = ConnectionEnd(code, reason)


def connection_end(error: Exception, connection: int) -> ConnectionEnd:
    """What the error of a connection's task means for its peer; logs what somebody should see."""
    match error:
        case ConnectionEnded():
            return error.end
        case ProtocolViolation():
            log.warning(
                "stream.violation", connection=connection, code=error.code, detail=str(error)
            )
            return ConnectionEnd(WSCloseCode.PROTOCOL_ERROR, str(error))
        case TimeoutError():
            return ConnectionEnd(WSCloseCode.TRY_AGAIN_LATER, "the peer reads nothing")
        case ConnectionError():
            return ConnectionEnd(WSCloseCode.OK)
        case _:
            log.error("stream.defect", connection=connection, exc_info=error)
            return ConnectionEnd(WSCloseCode.INTERNAL_ERROR, "a defect of the service")
