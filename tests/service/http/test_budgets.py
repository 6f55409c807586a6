"""Byte budgets and deadlines of request bodies and answers."""

import asyncio
import gzip
import socket
from asyncio import StreamReader
from contextlib import AsyncExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from aiohttp import web

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded
from service.http.application import ServiceParts
from service.http.limits import (
    AdmissionLimit,
    AnswerByteBudget,
    BodyByteBudget,
    RequestLimits,
    RequestResources,
)
from tests.service.http.serving import (
    CUSTOMERS,
    ONE,
    PATIENCE_S,
    Served,
    Setting,
    connected,
    exchanged,
    is_closed,
    served,
    with_parts,
)

HEAD = b"POST /v1/dimensions/customers/lookup HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"keys": [1]}'
LENGTH = b"Content-Length: 13\r\n"
INVITE = b"Expect: 100-continue\r\n"
QUICK = Setting(limits=RequestLimits(body_deadline_s=0.1, linger_s=0.1))
SMALL = Setting(limits=RequestLimits(request_bytes=1000, linger_s=0.1))


# Bodies


@pytest.mark.parametrize(
    ("setting", "sent", "status", "code"),
    [
        (SMALL, b"Content-Length: 1001\r\n\r\n", b"413", b"1000 bytes (limits.request_bytes)"),
        (SMALL, INVITE + b"Content-Length: 1001\r\n\r\n", b"413", b"body_too_large"),
        (
            SMALL,
            b"Transfer-Encoding: chunked\r\n\r\n" + (b"100\r\n" + b" " * 256 + b"\r\n") * 8,
            b"413",
            b"body_too_large",
        ),
        (SMALL, b"Expect: tea\r\n" + LENGTH + b"\r\n", b"417", b"expectation_failed"),
        (SMALL, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400", b""),
        (QUICK, LENGTH + b"\r\n{", b"408", b"request_timeout"),
    ],
    ids=["declared", "invited", "chunked", "unknown expectation", "broken chunks", "dripping"],
)
async def test_bad_body_is_refused(
    setting: Setting, sent: bytes, status: bytes, code: bytes
) -> None:
    """A body that is too large, late or broken is refused, and the connection is closed."""
    async with served(setting) as service:
        answer = await exchanged(service, HEAD + sent)

    assert answer.split()[1] == status
    assert code in answer


async def test_largest_body_is_accepted() -> None:
    """A body of exactly the limit is read."""
    async with served(SMALL) as service:
        replies = [await service.lookup('{"keys": []}'.ljust(size)) for size in (1000, 1001)]

    assert [each.status for each in replies] == [200, 413]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
async def test_compressed_body_is_refused(service: Served, encoding: str) -> None:
    """No compressed body is inflated."""
    bomb = gzip.compress(b" " * 100_000)

    reply = await service.post("lookup", bomb, Content_Encoding=encoding)

    assert reply.problem == (415, "unsupported_media_type")


def test_bodies_share_a_byte_budget() -> None:
    """Several bodies fit the budget together; a single one may be larger."""
    room = BodyByteBudget(100)
    room.take(80, held_bytes=0)
    room.take(80, held_bytes=80)  # alone
    room.give_back(160)
    room.take(80, held_bytes=0)
    room.take(20, held_bytes=0)
    with pytest.raises(Overloaded) as caught:
        room.take(1, held_bytes=20)
    room.give_back(80)
    room.take(80, held_bytes=20)

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)


async def until_status(service: Served, status: int) -> None:
    """Repeat a lookup of 160 bytes until it has this status."""
    async with asyncio.timeout(PATIENCE_S):
        while (await service.lookup('{"keys": [1]}'.ljust(160))).status != status:
            pass  # each request takes its time


async def test_stalled_body_holds_its_bytes() -> None:
    """While a slow body holds the budget, others are a 503; when it ends they are read."""
    async with served(with_parts(body_budget=BodyByteBudget(500))) as service:
        async with connected(service) as (_, writer):
            writer.write(HEAD + b"Content-Length: 1000\r\n\r\n" + b" " * 400)
            await until_status(service, 503)
        await until_status(service, 200)


async def begun_bodies(service: Served, count: int, stack: AsyncExitStack) -> list[StreamReader]:
    """Lookups whose bodies are incomplete; they began in this order."""
    readers = []
    for _ in range(count):
        reader, writer = await stack.enter_async_context(connected(service))
        writer.write(HEAD + INVITE + LENGTH + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")  # it is being read now
        writer.write(b"{")
        readers.append(reader)
    return readers


async def test_incomplete_bodies_hold_no_admission() -> None:
    """While slow bodies arrive, other lookups are served."""
    async with (
        served(Setting(limits=RequestLimits(connections=2))) as service,
        AsyncExitStack() as stack,
    ):
        await begun_bodies(service, 2, stack)

        assert (await service.lookup(BODY.decode(), over="tcp")).status == 200


async def test_complete_body_needs_admission() -> None:
    """A body that ends while all admissions are held is refused, and counts no more."""
    async with (
        served(Setting(limits=RequestLimits(connections=1))) as service,
        connected(service) as (
            reader,
            writer,
        ),
    ):
        writer.write(HEAD + INVITE + LENGTH + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        service.customers.hold()
        running = asyncio.create_task(service.lookup('{"keys": [2]}', over="tcp"))
        await service.customers.wait_for_fetches(1)
        writer.write(BODY)
        refusal = await reader.readuntil(b"\r\n\r\n")
        service.customers.release()

        assert refusal.startswith(b"HTTP/1.1 503 ")
        assert (await running).status == 200
        assert (await service.lookup(BODY.decode(), over="tcp")).status == 200


async def test_slow_body_is_ended() -> None:
    """A body that brings too few bytes in a period is a 408 long before its deadline."""
    async with served(Setting(limits=RequestLimits(rate_period_s=0.05, linger_s=0.1))) as service:
        answer = await exchanged(service, HEAD + LENGTH + b"\r\n{")

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"send at least 8192 bytes, or its end, in each 0.05 s" in answer


async def test_fast_body_continues() -> None:
    """A body that is invited, and brings enough bytes in each period, is read whole."""
    limits = RequestLimits(rate_period_s=PATIENCE_S, rate_bytes=100)
    async with served(Setting(limits=limits)) as service, connected(service) as (reader, writer):
        writer.write(HEAD + INVITE + b"Content-Length: 1013\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for _ in range(10):
            writer.write(b" " * 100)
            await writer.drain()
        writer.write(BODY)

        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_oldest_incomplete_body_is_refused() -> None:
    """Beyond four incomplete bodies per admission the oldest is a 503, and newcomers are read."""
    async with (
        served(Setting(limits=RequestLimits(connections=1))) as service,
        AsyncExitStack() as stack,
    ):
        readers = await begun_bodies(service, 5, stack)

        assert (await readers[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
        assert (await service.lookup(BODY.decode(), over="tcp")).status == 200
        assert not any(reader.at_eof() for reader in readers[1:])


# Answers


def answer(keys: int) -> Answer:
    """Rows of 1,000 bytes, plus a small overhead."""
    rows = pa.record_batch([pa.array(["x" * 1000] * keys)], names=["name"])
    outcomes = np.full(keys, Outcome.HIT, np.uint8)
    positions = np.arange(keys, dtype=np.int32)
    return Answer(positions, outcomes, np.zeros(keys, np.uint32), rows)


def resources(budget: AnswerByteBudget) -> RequestResources:
    """The resources of one more request."""
    return RequestResources(AdmissionLimit(1), budget)


@pytest.mark.parametrize(
    ("budget", "keys", "fits_once", "remedy"),
    [(10_000, 8, True, "at most 9 keys at once"), (500, 1, False, "raise limits.memory")],
)
def test_too_large_answer_names_what_fits(
    budget: int, keys: int, remedy: str, *, fits_once: bool
) -> None:
    """An answer beyond the whole budget is refused with the number of keys that fit."""
    hold = resources(AnswerByteBudget(budget))
    if fits_once:
        hold.take_answer(answer(keys))
    with pytest.raises(InvalidRequest) as caught:
        hold.take_answer(answer(keys))

    assert caught.value.code is ErrorCode.ANSWER_TOO_LARGE
    assert f"more than {budget} bytes" in caught.value.detail
    assert caught.value.detail.endswith(remedy)


def test_answers_of_others_are_an_overload() -> None:
    """An answer that would fit alone is retryable while others hold the bytes."""
    room = AnswerByteBudget(answer(8).total_bytes + answer(2).total_bytes)
    resources(room).take_answer(answer(8))
    resources(room).take_answer(answer(2))
    with pytest.raises(Overloaded) as caught:
        resources(room).take_answer(answer(1))

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)
    assert room.used_bytes == room.total_bytes


async def test_large_answer_is_refused() -> None:
    """A too large answer is a 413, for many keys as for one, and holds no bytes afterwards."""
    async with served(with_parts(answer_budget=AnswerByteBudget(40))) as service:
        large = await service.lookup('{"keys": [1, 2, 3]}')
        used_bytes = service.parts.answer_budget.used_bytes
        small = await service.lookup('{"keys": [1], "columns": ["name"]}')
    async with served(with_parts(answer_budget=AnswerByteBudget(5))) as service:
        row = await service.get(f"{ONE}/rows/1")

    assert (large.problem, row.problem) == ((413, "answer_too_large"),) * 2
    assert (used_bytes, small.status) == (0, 200)


async def test_cached_rows_count_in_parts() -> None:
    """The same cached key many times is refused before all its rows are copied."""
    async with served(with_parts(answer_budget=AnswerByteBudget(5_000))) as service:
        await service.lookup('{"keys": [1]}')
        reply = await service.lookup(f'{{"keys": {[1] * 90_000}}}')

    assert (reply.status, reply.headers["Connection"]) == (413, "close")
    assert "at most" in reply.json["detail"]


@pytest.mark.parametrize(("budget", "status"), [(180, 413), (300, 200)])
async def test_row_is_refused_fetched_or_cached(budget: int, status: int) -> None:
    """A row with too large a text is refused, fetched or cached."""
    # Each character has one byte in Arrow, and two in JSON.
    rows = CUSTOMERS.set_column(1, "name", pa.array(["\n" * 100] * 3))
    schema = DimensionSchema(rows.select(["id"]).schema, rows.select(["name", "tier"]).schema)
    setting = replace(
        with_parts(answer_budget=AnswerByteBudget(budget)),
        prepare=lambda backends: backends["customers"].replace(rows, schema),
    )
    async with served(setting) as service:
        replies = [await service.get(f"{ONE}/rows/1") for _ in range(3)]
        replies += [await service.lookup(f'{{"keys": [{key}]}}') for key in (1, 2, 2)]

        assert [each.status for each in replies] == [status] * 6
        assert service.parts.answer_budget.used_bytes == 0


# Clients that do not read

LARGE = b"x" * 16_000_000  # more than any socket buffer takes


async def large_json(_request: web.Request) -> web.StreamResponse:
    """A large answer in JSON."""
    return web.Response(body=LARGE, content_type="application/json")


def large(parts: ServiceParts) -> ServiceParts:
    """Two routes with large answers."""
    return replace(parts, metrics=lambda: LARGE, stream=large_json)


@pytest.mark.parametrize("path", ["/metrics", "/v1/stream"])
@pytest.mark.parametrize(
    "limits", [RequestLimits(send_deadline_s=0.05), RequestLimits(rate_period_s=0.05)]
)
async def test_deaf_callers_are_cut_off(path: str, limits: RequestLimits) -> None:
    """A response that is not read by the deadline, or fast enough, ends with its connection."""
    setting = Setting(limits=limits, change_parts=large)
    async with served(setting) as service:
        for _ in range(2):
            with (
                socket.create_connection(("127.0.0.1", service.port)) as first,
                socket.create_connection(("127.0.0.1", service.port)) as second,
            ):
                for caller in (first, second):
                    caller.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                    assert (await service.get("/livez", over="tcp")).status == 200
                assert [await asyncio.to_thread(is_closed, each) for each in (first, second)] == [
                    True,
                    True,
                ]


async def test_caller_may_leave_during_an_answer() -> None:
    """A client that disconnects during its response releases its admission."""
    setting = Setting(limits=RequestLimits(connections=1), change_parts=large)
    async with served(setting) as service:
        _, writer = await asyncio.open_unix_connection(str(service.path))
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await writer.drain()
        writer.transport.abort()

        await until_status(service, 200)


async def test_begun_response_is_left_alone() -> None:
    """A response that the handler has sent itself, as streams do, is left unchanged."""

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"by itself")
        return response

    async with served(with_parts(stream=stream)) as service:
        assert (await service.get("/v1/stream")).body == b"by itself"
