"""The answer of a lookup as JSON: outcomes, rows, ages and, only if there are any, errors.

Not the Arrow form: see `arrow`.
"""

import asyncio

import orjson

from lookup_core.answer import Outcome
from service.http.replies.json_rows import json_rows
from service.http.replies.lookup_result import LookupResult
from service.http.replies.row_texts import RowText

_LABELS = tuple(outcome.label for outcome in Outcome)


async def json_reply(result: LookupResult) -> bytes:
    """The body, in request order; lets other requests run while a long one is written."""
    outcomes = [_LABELS[outcome] for outcome in result.outcomes.tolist()]
    pieces = [b'{"outcomes":', orjson.dumps(outcomes), b',"rows":[']
    for index, rows in enumerate(json_rows(result.rows, result.has_row)):
        if index:
            await asyncio.sleep(0)
        pieces.append(rows)
    pieces += [b'],"ages_ms":', orjson.dumps(result.ages_ms.tolist()), _errors(result), b"}"]
    return b"".join(pieces)


def json_hit(row: RowText) -> bytes:
    """The body for one key whose row was cached."""
    return b'{"outcomes":["hit"],"rows":[%b],"ages_ms":[%d]}' % (row.text, row.age_ms)


def _errors(result: LookupResult) -> bytes:
    if not result.errors:
        return b""
    errors = {
        str(position): {"code": code.value, "retryable": code.is_retryable}
        for position, code in sorted(result.errors.items())
    }
    return b',"errors":' + orjson.dumps(errors)
