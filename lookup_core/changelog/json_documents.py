"""The JSON documents in messages, and what is wrong with those that are none.

What they say is the formats' business. Reasons never hold a part of a message.
"""

from dataclasses import dataclass

from lookup_core.changelog.change_decoder import JsonLoads


@dataclass(frozen=True, slots=True)
class JsonDocuments:
    """Reads documents up to a size."""

    loads: JsonLoads
    max_bytes: int

    def read(self, content: bytes | None) -> object:
        """The document, None where there is none; raises ValueError with a reason for the log."""
        if content is None:
            return None
        if len(content) > self.max_bytes:
            raise ValueError(f"it has {len(content)} bytes, more than {self.max_bytes}")
        try:
            return self.loads(content)
        except ValueError as error:
            raise ValueError("it is not JSON") from error
