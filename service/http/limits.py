"""How much one HTTP request may bring, and how long it may take to bring it.

Numbers only; where each is held stands with the module that holds it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of each listener; the deadlines are absolute, a slow drip does not extend them."""

    connections: int = 256  # requests under way at once, open streams included
    request_keys: int = 100_000
    request_bytes: int = 32 * 1024 * 1024
    header_deadline_s: float = 10.0  # also of a connection that says nothing
    body_deadline_s: float = 30.0
    send_deadline_s: float = 30.0
    linger_s: float = 2.0  # lets a caller who still sends read why it was refused
