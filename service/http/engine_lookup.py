"""One request's lookup in the engine, from what was asked to the answers in its order.

Bytes, media types and statuses are the callers' business.
"""

import asyncio
from collections.abc import Callable

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.typed_keys import TypedKeys
from service.engine.dimension import Dimension
from service.engine.tracer import AskerSpan
from service.http.answer_room import AnswerHold
from service.http.lookup_request import LookupRequest
from service.http.lookup_result import LookupResult, lookup_result


async def engine_lookup(
    dimension: Dimension,
    asked: LookupRequest,
    *,
    typed: Callable[[DimensionSchema], TypedKeys],
    hold: AnswerHold,
    span: AskerSpan | None = None,
) -> LookupResult:
    """Bring the keys into their types by `typed`, and look them up.

    The timeout covers the wait for a store that has not described itself yet. Raises BackendError
    if it still has not, InvalidRequest and Overloaded, also for answers without room in `hold`.
    Cancellation leaves shared work to others.
    """
    clock = asyncio.get_running_loop().time
    timeout_s = dimension.settings.timeout_s if asked.timeout_s is None else asked.timeout_s
    deadline_s = clock() + timeout_s
    schema = await dimension.wait_until_described(timeout_s)
    columns = schema.select(asked.columns)
    keys = typed(schema)
    left_s = max(0.0, deadline_s - clock())
    answers = await dimension.lookup(
        keys, columns=asked.columns, timeout_s=left_s, take=hold.take, asked_by=span
    )
    result = lookup_result(answers, keys.size, columns)
    if span is not None:
        span.count_outcomes(result.outcomes)
    return result
