"""W3C trace context of a request, as it travels."""

import re
from dataclasses import dataclass

# https://www.w3.org/TR/trace-context/#traceparent-header, of version 00, and what is no trace
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """Which span a request comes from; whoever gets a malformed one goes on without."""

    traceparent: str
    tracestate: str = ""

    @property
    def is_well_formed(self) -> bool:
        """Whether a span can be told from it."""
        return _TRACEPARENT.fullmatch(self.traceparent) is not None
