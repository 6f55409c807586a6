"""One key in a path leads to its row, or to the status of what happened."""

from collections.abc import Mapping

import pytest
from yarl import URL

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from tests.service.http.serving import Served, Setting, served

ROWS = "/v1/dimensions/customers/rows"


async def test_row_is_the_answer(service: Served) -> None:
    """The body is the row; outcome and age stand in headers."""
    async with service.unix.get(f"{ROWS}/1") as response:
        row = await response.json()

    assert (response.status, row) == (200, {"name": "Ada", "tier": 1})
    assert (response.headers["Sidelook-Outcome"], response.headers["Age"]) == ("fetched", "0")


async def test_columns_stand_in_the_query(service: Served) -> None:
    """Only the columns asked for come back."""
    async with service.unix.get(f"{ROWS}/2?columns=tier") as response:
        assert await response.json() == {"tier": 2}


async def test_missing_row_is_not_found(service: Served) -> None:
    """A key without a row has a status, and a code that tells it from a wrong path."""
    async with service.unix.get(f"{ROWS}/9") as response:
        problem = await response.json()

    assert (response.status, problem["code"], problem["retryable"]) == (404, "missing", False)


@pytest.mark.parametrize("key", ["x", "1.5", "", "99999999999999999999", "%00", "%ff"])
async def test_keys_of_other_types_are_refused(service: Served, key: str) -> None:
    """What is not of the key's type is the caller's fault, and is never asked."""
    async with service.unix.get(URL(f"{ROWS}/{key}", encoded=True)) as response:
        problem = await response.json()

    assert response.status == 400
    assert problem["code"] in {"type", "invalid_text"}
    assert service.customers.batches == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.BACKEND_REJECTED, 502),
        (ErrorCode.FORBIDDEN, 502),
        (ErrorCode.BACKEND_UNAVAILABLE, 503),
    ],
)
async def test_failures_have_their_status(service: Served, code: ErrorCode, status: int) -> None:
    """A store that fails is told apart from a row that is missing."""
    service.customers.fail_next(100, BackendError(code, "the store says why"))

    async with service.unix.get(f"{ROWS}/1?timeout_ms=5000") as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (status, code.value)


async def test_late_row_is_a_gateway_timeout(service: Served) -> None:
    """A row that is not there in time is a 504 that may be tried again."""
    service.customers.hold()

    async with service.unix.get(f"{ROWS}/1?timeout_ms=50") as response:
        problem = await response.json()

    assert (response.status, problem["code"], problem["retryable"]) == (504, "timeout", True)


async def test_explanation_names_the_state(service: Served) -> None:
    """Before a lookup a key is not cached, after it it is."""
    path = "/v1/dimensions/customers/explain/1"
    async with service.unix.get(path) as response:
        before = await response.json()
    await service.lookup('{"keys": [1]}')
    async with service.unix.get(path) as response:
        after = await response.json()

    assert (before["dimension"], before["state"]) == ("customers", "not_cached")
    assert before["age_ms"] is None
    assert (after["state"], after["waiters"]) == ("cached", 0)
    assert after["expires_in_ms"] > 0


async def test_cached_row_is_the_same(service: Served) -> None:
    """What was fetched is answered from the cache later, byte for byte, and told as a hit."""
    bodies, outcomes = [], []
    for _ in range(2):
        async with service.unix.get(f"{ROWS}/3") as response:
            bodies.append(await response.read())
            outcomes.append(response.headers["Sidelook-Outcome"])

    assert bodies == [b'{"name":null,"tier":3}'] * 2
    assert outcomes == ["fetched", "hit"]
    assert response.headers["Age"] == "0"
    assert len(service.customers.batches) == 1


async def test_row_waits_for_a_description() -> None:
    """A store that has not described itself in time is the reason that is told."""
    down = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "the store says why")

    def prepare(backends: Mapping[str, FakeBackend]) -> None:
        backends["customers"].describe_error = down

    async with (
        served(Setting(prepare=prepare, timeout_s=0.05)) as service,
        service.unix.get(f"{ROWS}/1") as response,
    ):
        problem = await response.json()

    assert (response.status, problem["detail"]) == (503, "the store says why")
