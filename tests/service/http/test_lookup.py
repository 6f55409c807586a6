"""Lookups are answered key by key, in order, whatever single keys are worth."""

import asyncio

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.engine.observer import NullObserver, QueryStatus
from service.http.limits import Limits
from tests.service.http.serving import JSON_TYPE, PATIENCE_S, Served, Setting, served

ARROW_TYPE = "application/vnd.apache.arrow.stream"
PATH = "/v1/dimensions/customers/lookup"
ADA = {"name": "Ada", "tier": 1}


class QueryEnds(NullObserver):
    """Notes how queries ended, so that a test can wait for it."""

    def __init__(self) -> None:
        self.results: asyncio.Queue[QueryStatus] = asyncio.Queue()

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """Note the result."""
        del dimension, keys, seconds
        self.results.put_nowait(result)


async def test_keys_are_answered_in_order(service: Served) -> None:
    """Duplicates, NULLs, unknown keys and keys of a wrong type stand where they were asked."""
    response = await service.lookup('{"keys": [1, 9, null, "1", 1]}')

    assert response.status == 200
    answer = await response.json()
    ages_ms = answer.pop("ages_ms")
    assert answer == {
        "outcomes": ["fetched", "missing", "missing", "error", "fetched"],
        "rows": [ADA, None, None, None, ADA],
        "errors": {"3": {"code": "type", "retryable": False}},
    }
    # As old as the query, however long that took; what was not asked has no age.
    assert (len(ages_ms), ages_ms[2:4], ages_ms[0]) == (5, [0, 0], ages_ms[4])


async def test_composite_keys_are_lists(service: Served) -> None:
    """A key of two columns is a list of two values; NaN has no place in JSON."""
    keys = '[["JFK", "1970-01-01T00:00:00Z"], ["a,b", "1970-01-01T01:00:00Z"], ["JFK", null]]'

    answer = await (await service.lookup(f'{{"keys": {keys}}}', "weather")).json()

    assert answer["rows"] == [{"temperature": 1.5}, {"temperature": None}, None]
    assert answer["outcomes"] == ["fetched", "fetched", "missing"]


async def test_columns_asked_for_are_answered(service: Served) -> None:
    """Only the columns asked for come back, in the order asked."""
    response = await service.lookup('{"keys": [2], "columns": ["tier"]}')

    assert (await response.json())["rows"] == [{"tier": 2}]


async def test_no_keys_ask_nobody(service: Served) -> None:
    """An empty list has an empty answer, and no query is made for it."""
    response = await service.lookup('{"keys": []}')

    assert await response.json() == {"outcomes": [], "rows": [], "ages_ms": []}
    assert service.customers.batches == []


async def test_body_of_plain_curl_is_taken(service: Served) -> None:
    """`curl -d` calls every body a form; ours is JSON all the same."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    async with service.unix.post(PATH, data=b'{"keys": [1]}', headers=headers) as response:
        answer = await response.json()

    assert answer["rows"] == [ADA]


async def test_arrow_is_answered_with_arrow(service: Served) -> None:
    """A stream of keys comes back as one batch with outcomes and rows."""
    keys = pa.record_batch({"id": pa.array([3, 9, None], pa.int32())})

    async with service.unix.post(
        f"{PATH}?columns=name,tier", data=_stream(keys), headers={"Content-Type": ARROW_TYPE}
    ) as response:
        (batch,) = pa.ipc.open_stream(await response.read())

    assert response.content_type == ARROW_TYPE
    assert batch.schema.names == ["outcome", "age_ms", "error", "name", "tier"]
    assert batch.drop_columns(["age_ms"]).to_pydict() == {
        "outcome": ["fetched", "missing", "missing"],
        "error": [None, None, None],
        "name": [None, None, None],
        "tier": [3, None, None],
    }


async def test_json_may_be_answered_with_arrow(service: Served) -> None:
    """What comes back is what the caller accepts, not what it sent."""
    headers = {**JSON_TYPE, "Accept": ARROW_TYPE}

    async with service.unix.post(PATH, data=b'{"keys": [1]}', headers=headers) as response:
        (batch,) = pa.ipc.open_stream(await response.read())

    assert batch.column("name").to_pylist() == ["Ada"]


async def test_arrow_of_another_type_is_refused(service: Served) -> None:
    """Keys of a type that would have to be guessed at are the whole request's fault."""
    keys = pa.record_batch({"id": pa.array([1.0])})

    async with service.unix.post(
        PATH, data=_stream(keys), headers={"Content-Type": ARROW_TYPE}
    ) as response:
        problem = await response.json()

    assert (response.status, problem["code"]) == (422, "key_type")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 400, "bad_json"),
        ('{"keys": [NaN]}', 400, "bad_json"),
        ("[" * 100_000, 400, "bad_json"),
        ('{"keys": 1}', 422, "bad_request"),
        ('{"keys": [], "\\ud800": 1}', 422, "bad_request"),
        ('{"keys": [], "columns": ["nme"]}', 422, "unknown_column"),
        ('{"keys": [], "columns": ["\\ud800"]}', 422, "unknown_column"),
    ],
)
async def test_bad_bodies_are_refused(service: Served, body: str, status: int, code: str) -> None:
    """What is wrong with the whole body is a problem with its code, never a 500."""
    response = await service.lookup(body)

    assert (response.status, (await response.json())["code"]) == (status, code)


async def test_too_many_keys_are_refused() -> None:
    """A request over the limit is refused as a whole, with the limit."""
    async with served(Setting(limits=Limits(request_keys=2))) as service:
        response = await service.lookup('{"keys": [1, 2, 3]}')

    problem = await response.json()
    assert (response.status, problem["code"]) == (413, "too_many_keys")
    assert problem["detail"] == "3 keys; a request may have 2"


async def test_failed_queries_are_outcomes(service: Served) -> None:
    """A store that refuses fails the keys it was asked for, not the request."""
    service.customers.fail_next(1, BackendError(ErrorCode.BACKEND_REJECTED, "no"))

    response = await service.lookup('{"keys": [1, "x"]}')

    assert response.status == 200
    assert (await response.json())["errors"] == {
        "0": {"code": "backend_rejected", "retryable": False},
        "1": {"code": "type", "retryable": False},
    }


async def test_late_keys_are_outcomes(service: Served) -> None:
    """Keys that are not there in time have the outcome `timeout` in a 200."""
    service.customers.hold()

    response = await service.lookup('{"keys": [1], "timeout_ms": 50}')

    assert (response.status, (await response.json())["outcomes"]) == (200, ["timeout"])


async def test_overload_is_refused_before_work() -> None:
    """More waiting keys than allowed are refused, and the caller is told when to come again."""
    async with served(Setting(max_waiting_keys=1)) as service:
        response = await service.lookup('{"keys": [1, 2]}')

    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    assert (await response.json())["code"] == "overloaded"


async def test_leaving_callers_end_their_query() -> None:
    """A query that nobody waits for any more is cancelled."""
    ends = QueryEnds()
    async with served(Setting(observer=ends)) as service:
        service.customers.hold()
        waiting = asyncio.create_task(service.lookup('{"keys": [1]}'))
        await service.customers.wait_for_fetches(1)

        waiting.cancel()
        async with asyncio.timeout(PATIENCE_S):
            result = await ends.results.get()

    assert (result, service.customers.cancelled_total) == (QueryStatus.CANCELLED, 1)


async def test_leaving_callers_harm_nobody_else(service: Served) -> None:
    """Who waits for the same key gets it, though the one who asked first has left."""
    service.customers.hold()
    first = asyncio.create_task(service.lookup('{"keys": [1]}'))
    await service.customers.wait_for_fetches(1)
    second = asyncio.create_task(service.lookup('{"keys": [1, 2]}'))
    await service.customers.wait_for_fetches(2)

    first.cancel()
    service.customers.release()

    assert (await (await second).json())["outcomes"] == ["fetched", "fetched"]
    assert len(service.customers.batches) == 2


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


async def test_one_cached_key_is_answered_as_many(service: Served) -> None:
    """Asked for alone, a cached row is what it is among others; so are columns chosen of it."""
    await service.lookup('{"keys": [1, 2]}')

    alone = await (await service.lookup('{"keys": [1]}')).json()
    chosen = await (await service.lookup('{"keys": [1], "columns": ["tier"]}')).json()

    assert (alone["outcomes"], alone["rows"], len(alone["ages_ms"])) == (["hit"], [ADA], 1)
    assert (chosen["outcomes"], chosen["rows"]) == (["hit"], [{"tier": 1}])
    assert alone.keys() == chosen.keys() == {"outcomes", "rows", "ages_ms"}


async def test_one_cached_key_may_be_wanted_in_arrow(service: Served) -> None:
    """A key sent as JSON is answered in Arrow to whom accepts only that, cached or not."""
    headers = {**JSON_TYPE, "Accept": ARROW_TYPE}
    for _ in range(2):
        async with service.unix.post(PATH, data='{"keys": [1]}', headers=headers) as response:
            rows = pa.ipc.open_stream(await response.read()).read_all()

    assert rows.select(["outcome", "name"]).to_pylist() == [{"outcome": "hit", "name": "Ada"}]
