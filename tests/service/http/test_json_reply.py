"""The JSON answer has the outside surface's members, and errors only if there are any."""

import asyncio

import numpy as np
import orjson
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.errors import ErrorCode
from service.http.replies.json_reply import json_hit, json_reply
from service.http.replies.json_rows import CHUNK_ROWS
from service.http.replies.lookup_result import LookupResult
from service.http.replies.row_texts import RowText


async def test_answer_has_its_members() -> None:
    """Outcomes, rows and ages stand beside each other in request order."""
    body = orjson.loads(await json_reply(_result([Outcome.FETCHED, Outcome.MISSING])))

    assert body == {
        "outcomes": ["fetched", "missing"],
        "rows": [{"value": 0}, None],
        "ages_ms": [0, 0],
    }


async def test_errors_are_told_by_position() -> None:
    """A key that failed tells its code, and whether another try may help."""
    errors = {1: ErrorCode.BACKEND_UNAVAILABLE, 0: ErrorCode.TYPE}

    body = orjson.loads(await json_reply(_result([Outcome.ERROR, Outcome.ERROR], errors)))

    assert body["errors"] == {
        "0": {"code": "type", "retryable": False},
        "1": {"code": "backend_unavailable", "retryable": True},
    }


async def test_long_answers_let_others_run() -> None:
    """Between two chunks of a long answer the event loop serves others."""
    turns: list[str] = []
    result = _result([Outcome.HIT] * (3 * CHUNK_ROWS))

    async with asyncio.TaskGroup() as both:
        reply = both.create_task(json_reply(result))
        both.create_task(_note(turns, reply))

    assert turns == ["while it was written"]


async def _note(turns: list[str], reply: asyncio.Task[bytes]) -> None:
    turns.append("after it" if reply.done() else "while it was written")


def _result(outcomes: list[Outcome], errors: dict[int, ErrorCode] | None = None) -> LookupResult:
    size = len(outcomes)
    rows = pa.record_batch({"value": pa.array(range(size))})
    ages_ms = np.zeros(size, np.uint32)
    return LookupResult(np.array(outcomes, np.uint8), ages_ms, rows, errors or {})


async def test_hit_is_written_as_among_others() -> None:
    """The answer to one key that was cached is, byte for byte, what it is in the general way."""
    rows = pa.record_batch({"name": pa.array(["Ada"])})
    hits = np.array([Outcome.HIT], np.uint8)
    result = LookupResult(hits, np.array([1500], np.uint32), rows, {})

    assert json_hit(RowText(b'{"name":"Ada"}', 1.5)) == await json_reply(result)
