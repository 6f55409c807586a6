"""How many messages are read at once: so that decoding them does not keep lookups waiting.

Counts of messages is all that a consumer can be asked for. How much it fetches from the brokers
ahead of that is another matter.
"""

from collections.abc import Iterable

_MOST_MESSAGES = 1000
_FIRST_MESSAGES = 100  # while it is not known how large they are
_READ_BYTES = 384 * 2**10  # some 5 ms of decoding


class KafkaReadSize:
    """As many messages as the last ones had room for in what may be read at once."""

    def __init__(self) -> None:
        self.messages = _FIRST_MESSAGES

    def note(self, sizes_bytes: Iterable[int]) -> None:
        """So large were the messages of one read."""
        sizes = [*sizes_bytes]
        if sizes:
            fitting = _READ_BYTES * len(sizes) // max(sum(sizes), 1)
            self.messages = min(max(fitting, 1), _MOST_MESSAGES)
