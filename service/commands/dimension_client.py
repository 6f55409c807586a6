"""Asking a running sidecar about one dimension, for the commands.

The connection is that of a `SidecarClient`, which is open meanwhile.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from service.commands.key_value import KeyField
from service.commands.problem import problem
from service.commands.sidecar_client import SidecarClient


@dataclass(frozen=True, slots=True)
class DimensionClient:
    """One dimension of a sidecar."""

    sidecar: SidecarClient
    dimension: str

    async def key_fields(self) -> list[KeyField]:
        """The columns of the dimension's key; raises SidelookError, also while it has none."""
        described = await self._ask("GET", "")
        if described["key"] is None:
            unavailable = described["unavailable"]
            raise problem(HTTPStatus.SERVICE_UNAVAILABLE, unavailable)
        return [KeyField(field["name"], field["type"]) for field in described["key"]]

    async def lookup(self, keys: Sequence[Any]) -> dict[str, Any]:
        """Outcomes, rows and ages in the order of the keys; raises SidelookError."""
        return await self._ask("POST", "/lookup", body={"keys": keys})

    async def explain(self, key: object) -> dict[str, Any]:
        """Where this key's answer comes from; raises SidelookError."""
        parts = key if isinstance(key, list) else [key]
        return await self._ask("GET", f"/explain/{','.join(map(_segment, parts))}")

    async def invalidate(self, keys: Sequence[Any] | None) -> dict[str, Any]:
        """Forget the keys, or all for None; raises SidelookError."""
        return await self._ask(
            "POST", "/invalidate", body={"all": True} if keys is None else {"keys": keys}
        )

    async def _ask(self, method: str, path: str, *, body: object = None) -> dict[str, Any]:
        one = f"/v1/dimensions/{quote(self.dimension, safe='')}"
        return await self.sidecar.ask(method, f"{one}{path}", body=body)


def _segment(part: object) -> str:
    return quote(part if isinstance(part, str) else json.dumps(part), safe="")
