"""Response of a sidecar, as doctor and commands read it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class SidecarResponse:
    """An HTTP response; a body that is not JSON is text."""

    status: int
    body: Any = None
    date: str | None = None  # header

    @classmethod
    def parsed(cls, status: int, text: str, date: str | None) -> Self:
        """Return the response with this text; raises RecursionError for too deep a nesting."""
        try:
            return cls(status, json.loads(text) if text.strip() else None, date)
        except ValueError:
            return cls(status, text, date)

    @property
    def is_ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status == 200

    @property
    def is_object(self) -> bool:
        """Whether the body is a JSON object."""
        return isinstance(self.body, dict)

    @property
    def fields(self) -> Mapping[str, Any]:
        """Fields of a JSON object; empty for any other body."""
        return self.body if self.is_object else {}

    @property
    def refusal(self) -> str:
        """Status, and the detail if there is one."""
        detail = self.fields.get("detail")
        return f"status {self.status}" + (f", {detail}" if detail else "")
