"""What is asked over HTTP, and what must come back: a right answer is what is measured.

Does not measure.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.request import Request, urlopen

import pyarrow as pa

from bench.wrk import WrkRequest

ONE = "one key, its row"
ONE_POSTED = "one key, posted"
HUNDRED = "100 keys, posted"
_DIMENSION = "/v1/dimensions/customers"
_ROUTE = "/v1/dimensions/{name}"
_TIMEOUT_S = 10.0
_STRIDE = 71


@dataclass(frozen=True, slots=True)
class HttpCase:
    """A question to the dimension `customers`, and the rows that answer it."""

    name: str
    request: WrkRequest
    route: str  # the form of the path
    rows: Sequence[Mapping[str, Any]]

    def fault(self, url: str) -> str | None:
        """What is wrong with the answer of the server there, if anything is."""
        answer = self.answer(url)
        rows = answer.get("rows", [answer])
        return None if rows == self.rows else f"{self.name}: {url} gives other rows"

    def answer(self, url: str) -> dict[str, Any]:
        """What the server there answers; raises OSError for another status than 2xx."""
        asked = self.request
        headers = {"Content-Type": "application/json"}
        request = Request(  # noqa: S310  # of this benchmark's own servers
            url + asked.path, asked.body.encode() or None, headers, method=asked.method
        )
        with urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310
            found: dict[str, Any] = json.loads(response.read())
        return found


def http_cases(customers: pa.Table) -> list[HttpCase]:
    """All of them, for a dimension in which row n has the key n."""
    many = [number * _STRIDE for number in range(100)]
    return [
        HttpCase(
            ONE,
            WrkRequest("GET", f"{_DIMENSION}/rows/42"),
            f"{_ROUTE}/rows/{{key}}",
            _rows(customers, [42]),
        ),
        _posted(ONE_POSTED, customers, [42]),
        _posted(HUNDRED, customers, many),
    ]


def _posted(name: str, customers: pa.Table, keys: list[int]) -> HttpCase:
    request = WrkRequest("POST", f"{_DIMENSION}/lookup", json.dumps({"keys": keys}))
    return HttpCase(name, request, f"{_ROUTE}/lookup", _rows(customers, keys))


def _rows(customers: pa.Table, keys: list[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = customers.drop_columns(["id"]).take(keys).to_pylist()
    return rows
