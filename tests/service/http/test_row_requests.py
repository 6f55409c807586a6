"""Lookups of many keys and of single rows, in JSON and Arrow, and their traces."""

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from lookup_core.dimension.dimension_events import UnfitRows
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.protocol.frames import TraceParent
from service.engine.tracer import TracedRequest
from service.http.limits import RequestLimits
from tests.service.engine.fake_tracer import FakeTracer
from tests.service.engine.running import queried, until
from tests.service.http.serving import (
    ARROW_TYPE,
    ONE,
    Served,
    Setting,
    arrow_stream,
    away,
    exchanged,
    served,
    with_parts,
)

JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
ADA = {"name": "Ada", "tier": 1}
ROWS = f"{ONE}/rows"


def arrow_keys(column: pa.Array) -> bytes:
    """Keys as an Arrow stream."""
    return arrow_stream(pa.record_batch({"id": column}))


# Many keys


TYPE_FAILURE = {
    "code": "type",
    "retryable": False,
    "detail": f"{ErrorCode.TYPE.explanation}; the key is (id bigint)",
}


async def test_keys_are_answered_in_order(service: Served) -> None:
    """Duplicates, NULLs, unknown keys and keys of a wrong type have outcomes by position."""
    reply = await service.lookup('{"keys": [1, 9, null, "1", 1]}')

    answer = reply.json
    ages_ms = answer.pop("ages_ms")
    assert (reply.status, answer) == (
        200,
        {
            "outcomes": ["fetched", "missing", "missing", "error", "fetched"],
            "rows": [ADA, None, None, None, ADA],
            "errors": {"3": TYPE_FAILURE},
        },
    )
    # The age counts from the query; a key without a query has no age.
    assert (len(ages_ms), ages_ms[2:4], ages_ms[0]) == (5, [0, 0], ages_ms[4])


async def test_composite_keys_are_lists(service: Served) -> None:
    """A key of two columns is a list of two values; NaN becomes null."""
    keys = '[["JFK", "1970-01-01T00:00:00Z"], ["a,b", "1970-01-01T01:00:00Z"], ["JFK", null]]'

    answer = (await service.lookup(f'{{"keys": {keys}}}', "weather")).json

    assert answer["rows"] == [{"temperature": 1.5}, {"temperature": None}, None]
    assert answer["outcomes"] == ["fetched", "fetched", "missing"]


async def test_no_keys_need_no_query(service: Served) -> None:
    """An empty list has an empty answer; an unknown column fails before any query, too."""
    empty = await service.lookup('{"keys": []}')
    unknown = await service.lookup('{"keys": [1], "columns": ["nme"]}')

    assert empty.json == {"outcomes": [], "rows": [], "ages_ms": []}
    assert unknown.json["detail"] == 'column "nme" does not exist; did you mean name?'
    assert queried(service.customers) == []


async def test_one_cached_key_is_answered_as_many(service: Served) -> None:
    """A cached key has the same answer alone and among others, with or without columns."""
    await service.lookup('{"keys": [1, 2]}')

    alone = (await service.lookup('{"keys": [1]}')).json
    chosen = (await service.lookup('{"keys": [1], "columns": ["tier"]}')).json

    assert (alone["outcomes"], alone["rows"], len(alone["ages_ms"])) == (["hit"], [ADA], 1)
    assert (chosen["outcomes"], chosen["rows"]) == (["hit"], [{"tier": 1}])
    assert alone.keys() == chosen.keys() == {"outcomes", "rows", "ages_ms"}


async def test_arrow_is_answered_with_arrow(service: Served) -> None:
    """The reply to an Arrow stream is one batch: outcomes, then the columns of the query string."""
    keys = arrow_keys(pa.array([3, 9, None], pa.int32()))

    reply = await service.post("lookup?columns=name,tier", keys, Content_Type=ARROW)

    rows = reply.rows
    assert (reply.headers["Content-Type"], rows.schema.names) == (
        ARROW,
        ["outcome", "age_ms", "error", "name", "tier"],
    )
    assert rows.drop_columns(["age_ms"]).to_pydict() == {
        "outcome": ["fetched", "missing", "missing"],
        "error": [None, None, None],
        "name": [None, None, None],
        "tier": [3, None, None],
    }


async def test_json_may_be_answered_with_arrow(service: Served) -> None:
    """The reply to JSON keys is Arrow if the client accepts it, fetched or cached."""
    replies = [await service.post("lookup", '{"keys": [1]}', Accept=ARROW) for _ in range(2)]

    assert [each.rows.select(["outcome", "name"]).to_pylist() for each in replies] == [
        [{"outcome": outcome, "name": "Ada"}] for outcome in ("fetched", "hit")
    ]


@pytest.mark.parametrize(
    ("sent", "accepted", "status", "answered"),
    [
        ("Application/JSON; charset=utf-8", "*/*", 200, JSON),
        ("application/x-www-form-urlencoded", "application/*", 200, JSON),  # `curl -d`
        (JSON, f"{ARROW}, */*;q=0.1", 200, JSON),
        (JSON, f"text/html, {ARROW};q=0.5", 200, ARROW),
        (JSON, "text/csv", 406, "application/problem+json"),
        ("text/plain", "*/*", 415, "application/problem+json"),
        ("multipart/form-data", "*/*", 415, "application/problem+json"),
    ],
)
async def test_media_types_are_negotiated(
    service: Served, sent: str, accepted: str, status: int, answered: str
) -> None:
    """The reply has the type of the body if the client accepts it, else the other type."""
    reply = await service.post("lookup", '{"keys": []}', Content_Type=sent, Accept=accepted)

    assert (reply.status, reply.headers["Content-Type"]) == (status, answered)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{", (400, "bad_json")),
        ('{"keys": [], "\\ud800": 1}', (422, "bad_request")),
        ('{"keys": [], "columns": ["\\ud800"]}', (422, "unknown_column")),
    ],
)
async def test_bad_body_is_a_problem(service: Served, body: str, problem: tuple[int, str]) -> None:
    """A fault of the whole body is a problem with a code, never a 500."""
    assert (await service.lookup(body)).problem == problem


async def test_arrow_keys_need_their_type(service: Served) -> None:
    """Arrow keys of another type, and a query string with a JSON body, fail the request."""
    floats = await service.post("lookup", arrow_keys(pa.array([1.0])), **ARROW_TYPE)
    query = await service.post("lookup?columns=name", '{"keys": [1]}')

    assert (floats.problem, query.problem) == ((422, "key_type"), (422, "bad_request"))


async def test_keys_of_a_request_are_bounded() -> None:
    """A request with too many keys fails as a whole, in JSON and Arrow, with the limit."""
    async with served(Setting(limits=RequestLimits(request_keys=2))) as service:
        replies = [
            await service.lookup('{"keys": [1, 2, 3]}'),
            await service.post("lookup", arrow_keys(pa.array([1, 2, 3])), **ARROW_TYPE),
            await service.post("invalidate", '{"keys": [1, 2, 3]}'),
        ]
        assert (await service.lookup('{"keys": [1, 2]}')).status == 200

    assert [each.problem for each in replies] == [(413, "too_many_keys")] * 3
    assert {each.json["detail"] for each in replies} == {
        "3 keys; a request may have at most 2 (limits.request_keys)"
    }


async def test_failed_keys_are_outcomes(service: Served) -> None:
    """A failed query, a wrong type and a timeout fail their keys, not the request."""
    service.customers.fail_next(2, BackendError(ErrorCode.BACKEND_REJECTED, "no"))
    failed = await service.lookup('{"keys": [1, "x"]}')
    as_arrow = await service.post("lookup", '{"keys": [1, "x"]}', Accept=ARROW)
    service.customers.hold()
    late = await service.lookup('{"keys": [1], "timeout_ms": 50}')

    assert (failed.status, late.status) == (200, 200)
    assert failed.json["errors"] == {
        "0": {"code": "backend_rejected", "retryable": False, "detail": "no"},
        "1": TYPE_FAILURE,
    }
    assert as_arrow.rows["error"].to_pylist() == ["backend_rejected", "type"]
    assert late.json["outcomes"] == ["timeout"]


async def test_overload_fails_the_request() -> None:
    """More keys than may be queued fail the request before any query, with `Retry-After`."""
    async with served(Setting(max_waiting_keys=1)) as service:
        reply = await service.lookup('{"keys": [1, 2]}')

    assert (reply.problem, reply.headers["Retry-After"]) == ((503, "overloaded"), "1")


async def test_lookup_waits_for_the_schema() -> None:
    """A lookup waits for an unavailable backend until its timeout, then fails with its fault."""
    async with served(replace(away(), timeout_s=0.05)) as service:
        late = await service.lookup('{"keys": [1]}')
        row = await service.get(f"{ROWS}/1")
        waiting = asyncio.create_task(service.lookup('{"keys": [1], "timeout_ms": 9000}'))
        await asyncio.sleep(0)
        service.customers.describe_error = None

        assert (await waiting).json["outcomes"] == ["fetched"]
    for reply in (late, row):
        assert (reply.problem, reply.headers["Retry-After"]) == ((503, "backend_unavailable"), "1")
        assert reply.json["detail"] == 'dimension "customers": customers: the reason'


async def test_left_request_leaves_its_query(service: Served) -> None:
    """A disconnect cancels the client's own queries, but not shared ones."""
    service.customers.hold()
    first = asyncio.create_task(service.lookup('{"keys": [1]}'))
    await service.customers.wait_for_fetches(1)
    second = asyncio.create_task(service.lookup('{"keys": [1, 2]}'))
    await service.customers.wait_for_fetches(2)
    third = asyncio.create_task(service.lookup('{"keys": [3]}'))
    await service.customers.wait_for_fetches(3)

    first.cancel()
    third.cancel()
    await until(lambda: service.customers.cancelled_total == 1)
    service.customers.release()

    assert (await second).json["outcomes"] == ["fetched", "fetched"]
    assert queried(service.customers) == [[1], [2], [3]]


# Single rows


async def test_row_is_the_answer(service: Served) -> None:
    """The body is the row, the same bytes fetched or cached; headers have outcome and age."""
    replies = [await service.get(f"{ROWS}/3") for _ in range(3)]
    chosen = await service.get(f"{ROWS}/2?columns=tier")

    assert {(each.status, each.body) for each in replies} == {(200, b'{"name":null,"tier":3}')}
    assert [each.headers["Sidelook-Outcome"] for each in replies] == ["fetched", "hit", "hit"]
    assert {each.headers["Age"] for each in replies} == {"0"}
    assert chosen.json == {"tier": 2}
    assert queried(service.customers) == [[3], [2]]


@pytest.mark.parametrize(
    ("key", "temperature"),
    [
        ("JFK,1970-01-01T00:00:00Z", 1.5),
        ("JFK,1970-01-01T01%3A00%3A00%2B01:00", 1.5),
        ("a%2Cb,1970-01-01T01:00:00Z", None),
        ("a%2Fb,1970-01-01T00:00:00Z", 3.5),
    ],
)
async def test_composite_key_has_commas(
    service: Served, key: str, temperature: float | None
) -> None:
    """Plain commas separate a composite key; percent-encoded commas and slashes do not."""
    reply = await service.get(f"/v1/dimensions/weather/rows/{key}")

    assert reply.json == {"temperature": temperature}


@pytest.mark.parametrize("key", ["JFK", "JFK,1970-01-01T00:00:00Z,x", "JFK,1970-01-01"])
async def test_wrong_number_of_parts_is_refused(service: Served, key: str) -> None:
    """A composite key with too few or too many parts is refused with the expected key."""
    reply = await service.get(f"/v1/dimensions/weather/rows/{key}")

    assert reply.problem == (400, "type")
    assert "origin string, hour timestamp[us, tz=UTC]" in reply.json["detail"]


async def test_row_without_answer_has_its_status(service: Served) -> None:
    """A failed query, a missing row and a timeout have different statuses."""
    service.customers.fail_next(1, BackendError(ErrorCode.BACKEND_REJECTED, "the reason"))
    failed = await service.get(f"{ROWS}/1")
    missing = await service.get(f"{ROWS}/9")
    service.customers.hold()
    late = await service.get(f"{ROWS}/1?timeout_ms=50")

    assert [each.problem for each in (failed, missing, late)] == [
        (502, "backend_rejected"),
        (404, "missing"),
        (504, "timeout"),
    ]
    assert [each.json["retryable"] for each in (failed, missing, late)] == [False, False, True]


async def test_unfit_row_names_its_column(service: Served) -> None:
    """A row that does not fit its types fails its key; the detail names dimension and column."""
    code = ErrorCode.VALUE_REJECTED
    detail = "column name: a value does not fit int; types: {name: string} reads it as text"
    unfit = service.customers.next_unfit = UnfitRows(code, np.zeros(1, np.int32), detail)
    alone = await service.get(f"{ROWS}/1")
    service.customers.next_unfit = unfit
    many = await service.lookup('{"keys": [1, 2]}')
    described = await service.get(ONE)

    assert alone.problem == (502, code)
    assert alone.json["detail"] == (
        f'dimension "customers": the lookup of this key failed: {detail}'
    )
    assert many.json["outcomes"] == ["error", "fetched"]
    assert many.json["errors"] == {"0": {"code": code, "retryable": False, "detail": detail}}
    error = described.json["recent_errors"][0]
    assert [error[name] for name in ("code", "detail", "keys", "queries")] == [
        code,
        detail,
        2,
        2,
    ]


async def test_explanation_names_the_state(service: Served) -> None:
    """A key is not cached before its lookup; afterwards it is, with an expiry."""
    before = (await service.get(f"{ONE}/explain/1")).json
    await service.lookup('{"keys": [1]}')
    after = (await service.get(f"{ONE}/explain/1")).json

    assert (before["dimension"], before["state"], before["age_ms"]) == (
        "customers",
        "not_cached",
        None,
    )
    assert (after["state"], after["waiters"], after["expires_in_ms"] > 0) == ("cached", 0, True)


# Traces

TRACEPARENT = ("traceparent", f"00-{'a' * 32}-{'b' * 16}-01")
LOOKUP = TracedRequest("POST", "/v1/dimensions/{name}/lookup", "customers")
ROW = TracedRequest("GET", "/v1/dimensions/{name}/rows/{key}", "customers")


async def test_requests_for_rows_are_spans() -> None:
    """A span has the pattern of the path, a known dimension, the outcomes and the status."""
    tracer = FakeTracer()
    async with served(Setting(tracer=tracer)) as service:
        await service.lookup('{"keys": [1, 9]}')
        await service.lookup('{"keys": [1]}')
        for path in (f"{ROWS}/1", f"{ROWS}/9", "/v1/dimensions/secret/rows/1"):
            await service.get(path)
        for path in ("/livez", "/metrics", "/v1/dimensions", "/nowhere"):
            await service.get(path)
        service.customers.fail_next(100, BackendError(ErrorCode.BACKEND_REJECTED, "no"))
        await service.get(f"{ROWS}/2")

    assert [(span.what, span.outcomes, span.status) for span in tracer.callers] == [
        (LOOKUP, {"fetched": 1, "missing": 1}, 200),
        (LOOKUP, {"hit": 1}, 200),
        (ROW, {"hit": 1}, 200),
        (ROW, {"missing": 1}, 404),
        (TracedRequest("GET", ROW.route, None), {}, 404),
        (ROW, {"error": 1}, 502),
    ]
    assert tracer.queries[0].callers == [tracer.callers[0]]


async def test_trace_headers_name_the_parent() -> None:
    """A single `traceparent` is the parent, with the complete `tracestate`; several are ignored."""
    tracer = FakeTracer()
    once = [TRACEPARENT, ("tracestate", "a=1"), ("tracestate", "b=2")]
    async with served(Setting(tracer=tracer)) as service:
        for headers in (once, [*once, TRACEPARENT], []):
            await service.tcp.get(f"{ROWS}/1", headers=headers)

    assert [span.parent for span in tracer.callers] == [
        TraceParent(TRACEPARENT[1], "a=1,b=2"),
        None,
        None,
    ]


async def test_left_request_ends_its_span() -> None:
    """The span of a disconnected client ends without a status."""
    tracer = FakeTracer()
    async with served(Setting(tracer=tracer)) as service:
        service.customers.hold()
        lookup = asyncio.ensure_future(service.lookup('{"keys": [1]}'))
        await service.customers.wait_for_fetches(1)
        lookup.cancel()
        await until(lambda: tracer.callers[0].has_ended)

    assert (tracer.callers[0].is_left, tracer.callers[0].status) == (True, None)


GET_ROW = f"GET {ONE}/rows/".encode()
CLOSE = b"Connection: close\r\n"


# Responses


async def test_pipelined_requests_are_answered_in_turn(service: Served) -> None:
    """Pipelined requests are answered in order."""
    rows = [GET_ROW + key + b" HTTP/1.1\r\nHost: localhost\r\n" for key in (b"1", b"2", b"1")]
    lives = [b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"] * 197

    answers = await exchanged(service, b"\r\n".join([*lives, *rows]) + CLOSE + b"\r\n")

    parts = answers.split(b"HTTP/1.1 200 OK")[1:]
    assert len(parts) == 200
    names = [part.partition(b'"name":')[2][:5] for part in parts[197:]]
    assert names == [b'"Ada"', b'"Bert', b'"Ada"']


async def test_caller_that_left_gets_nothing() -> None:
    """A response to a closed connection is dropped without an error."""

    async def leave(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response(body=b"{}")

    async with served(with_parts(stream=leave)) as service:
        with capture_logs() as logs:
            line = b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"
            answer = await exchanged(service, line)
            await asyncio.sleep(0)

    assert (answer, logs) == (b"", [])
