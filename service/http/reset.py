"""Ends a connection at once, with what its caller has not read yet.

Not for callers who read: they get the rest first when a connection is closed.
"""

import asyncio
import socket
import struct
from contextlib import suppress

_RESET = struct.pack("ii", 1, 0)  # Linux's struct linger: on, without waiting


def reset(transport: asyncio.Transport) -> None:
    """Reset the connection; harmless when its caller has just done so."""
    # Its socket is closed then: a bad descriptor, in the words of asyncio or of uvloop.
    with suppress(OSError, ValueError):
        # Without a reset the kernel would go on offering what it has already taken.
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    transport.abort()
