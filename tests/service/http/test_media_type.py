"""What is sent is told from what is wanted, and neither is guessed at."""

import pytest

from tests.service.http.serving import Served

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
PATH = "/v1/dimensions/customers/lookup"


@pytest.mark.parametrize(
    "sent", [JSON, "Application/JSON; charset=utf-8", "application/x-www-form-urlencoded"]
)
async def test_json_is_taken(service: Served, sent: str) -> None:
    """JSON is taken by its name, and from `curl -d`, which calls it a form."""
    assert await _status_and_type(service, {"Content-Type": sent}) == (200, JSON)


@pytest.mark.parametrize("sent", ["text/plain", "multipart/form-data", "application/xml"])
async def test_other_bodies_are_refused(service: Served, sent: str) -> None:
    """A body of another type is not taken for JSON."""
    status, _ = await _status_and_type(service, {"Content-Type": sent})

    assert status == 415


@pytest.mark.parametrize(
    ("accepted", "answered"),
    [
        ("*/*", JSON),
        ("application/*", JSON),
        (f"{ARROW}, */*;q=0.1", JSON),
        (ARROW, ARROW),
        (f"text/html, {ARROW};q=0.5", ARROW),
    ],
)
async def test_answer_is_what_is_accepted(service: Served, accepted: str, answered: str) -> None:
    """The body's own type is answered where it is accepted, else the other one."""
    headers = {"Content-Type": JSON, "Accept": accepted}

    assert await _status_and_type(service, headers) == (200, answered)


async def test_unknown_wishes_are_refused(service: Served) -> None:
    """Who accepts neither JSON nor Arrow cannot be answered."""
    headers = {"Content-Type": JSON, "Accept": "text/csv"}

    assert await _status_and_type(service, headers) == (406, "application/problem+json")


async def _status_and_type(service: Served, headers: dict[str, str]) -> tuple[int, str]:
    async with service.unix.post(PATH, data=b'{"keys": []}', headers=headers) as response:
        return response.status, response.content_type
