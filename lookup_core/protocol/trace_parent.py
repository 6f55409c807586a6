"""W3C trace context of a request, as text."""

import re
from dataclasses import dataclass

# https://www.w3.org/TR/trace-context/#traceparent-header, version 00, without all-zero ids
_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The parent span of a request; a malformed one is ignored."""

    traceparent: str
    tracestate: str = ""

    @property
    def is_well_formed(self) -> bool:
        """Whether it names a span."""
        return _TRACEPARENT.fullmatch(self.traceparent) is not None
