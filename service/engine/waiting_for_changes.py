"""Carries out the waiting for a dimension's changes: what is released is looked up then.

Which lookups wait, and until when, is the core's decision. One lookup may be released in parts,
each of which is a lookup of its own for the runner.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.changelog.change_decoder import Change
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.held_lookups import Released
from lookup_core.errors import ErrorCode, Overloaded
from service.engine.gathering import Deliver, Submitted
from service.engine.pause import pause
from service.engine.state_runner import StateRunner


@dataclass(slots=True)
class _Waiting:
    request: LookupRequest
    deliver: Deliver
    left: int  # positions without an answer
    parts: list[LookupId] = field(default_factory=list)  # what the runner was asked


class WaitingForChanges:
    """The lookups of one runner that wait; used by one event loop only."""

    def __init__(
        self,
        runner: StateRunner,
        *,
        new_id: Callable[[], LookupId],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._wait = runner.state.wait
        self._new_id = new_id
        self._clock = clock
        self._waiting: dict[LookupId, _Waiting] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait for changes."""
        return len(self._wait.held)

    @property
    def is_waited_for(self) -> bool:
        """Whether a lookup that had to wait has not got its last answer yet."""
        return bool(self._waiting) or self._runner.is_waited_for

    def submit(self, request: LookupRequest, deliver: Deliver, *, now: float) -> Submitted:
        """Ask for keys; if changes up to the time of the records may be missing, later.

        Raises Overloaded when too many keys wait.
        """
        if not self._wait.is_ahead(request):
            return self._runner.submit(request, deliver, now=now)
        self._runner.state.check_room(len(self) + request.keys.size)
        self._wait.hold(request, now)
        self._waiting[request.id] = _Waiting(request, deliver, request.keys.size)
        self._news.set()
        return Submitted(request.id, [], is_done=False)

    def leave(self, lookup_id: LookupId) -> None:
        """Nobody waits for this lookup any more; harmless when it has ended."""
        waiting = self._waiting.pop(lookup_id, None)
        if waiting is None:
            self._runner.leave(lookup_id)
            return
        self._wait.held.leave([lookup_id])
        for part in waiting.parts:
            self._runner.leave(part)

    def on_changes(self, changes: Iterable[Change]) -> None:
        """These were told, and are known to the runner."""
        self._ask(self._wait.on_changes(changes))

    def on_watermark(self, watermark_ms: int) -> None:
        """All changes before this time were."""
        self._ask(self._wait.on_watermark(watermark_ms))

    async def run(self) -> None:
        """Ask for what has waited long enough, until cancelled: then all who wait are told so."""
        try:
            while True:
                self._ask(self._wait.held.expire(self._clock()))
                await self._pause()
        finally:
            for released in self._wait.held.release_all():
                self._refuse(released, ErrorCode.SCHEMA_CHANGED)

    async def _pause(self) -> None:
        deadline_s = self._wait.held.next_deadline()
        self._news.clear()
        await pause(self._news, None if deadline_s is None else deadline_s - self._clock())

    def _ask(self, released: Iterable[Released]) -> None:
        now = self._clock()
        for each in released:
            try:
                self._ask_for(each, now)
            except Overloaded as error:
                self._refuse(each, error.code)

    def _ask_for(self, released: Released, now: float) -> None:
        waiting = self._waiting[released.lookup_id]
        part = replace(
            waiting.request,
            id=self._new_id(),
            keys=waiting.request.keys.taken(released.positions),
            event_time_ms=None,
        )

        def deliver(answer: Answer, _is_last: bool) -> None:  # noqa: FBT001  the shape of Deliver
            self._deliver(released, answer)

        submitted = self._runner.submit(part, deliver, now=now)
        waiting.parts.append(part.id)
        for answer in submitted.answers:
            self._deliver(released, answer)

    def _refuse(self, released: Released, code: ErrorCode) -> None:
        every = np.arange(len(released.positions), dtype=np.int32)
        self._deliver(released, rowless_answer(every, Outcome.ERROR, error=code))

    def _deliver(self, released: Released, answer: Answer) -> None:
        """Pass on what came for a part, at the positions of the whole."""
        waiting = self._waiting[released.lookup_id]
        waiting.left -= answer.size
        if not waiting.left:
            del self._waiting[released.lookup_id]
        waiting.deliver(answer.placed(released.positions), not waiting.left)
