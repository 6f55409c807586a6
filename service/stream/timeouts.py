"""How long the peer of a stream may take for what it owes.

Numbers only; what follows when one is over stands with the module that waits.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Of one connection."""

    hello_s: float = 10.0  # until the first frame
    describe_s: float = 2.0  # how long OPEN waits for a store that has not told its schema
    send_s: float = 30.0  # for taking one frame
    close_s: float = 2.0  # for answering the close of the connection
    heartbeat_s: float = 15.0  # of silence until a ping; half of it for the answer
