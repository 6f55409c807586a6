"""Lookups of one runner that wait for the dimension's watermark, and are looked up afterwards.

The core decides which keys wait and for how long. The keys of one lookup may be released in several
parts; each part is a lookup of the runner.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.changelog.change_decoder import Change
from lookup_core.deadlines import earliest
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.flight_table import LookupId
from lookup_core.dimension.watermark_wait import Released
from lookup_core.errors import ErrorCode, Overloaded
from service.engine.gathering import Submitted
from service.engine.state_runner import Caller, StateRunner


@dataclass(slots=True)
class _Waiting:
    request: LookupRequest
    caller: Caller
    left: int  # positions without an answer
    parts: list[LookupId] = field(default_factory=list)  # lookups of the runner


class WaitingForChanges:
    """Passes lookups to the runner, at once or after their wait; used by one event loop only."""

    def __init__(self, runner: StateRunner, *, new_id: Callable[[], LookupId]) -> None:
        self._runner = runner
        self._wait = runner.state.wait
        self._new_id = new_id
        self._clock = runner.clock
        self._waiting: dict[LookupId, _Waiting] = {}

    @property
    def is_waited_for(self) -> bool:
        """Whether some lookup has not got its last answer yet."""
        return bool(self._waiting) or self._runner.is_waited_for

    def step(self, tasks: asyncio.TaskGroup) -> float | None:
        """Release overdue lookups and step the runner; returns when the next step is due."""
        self._look_up(self._wait.expire(self._clock()))
        return earliest(self._runner.step(tasks), self._wait.next_deadline())

    def submit(self, request: LookupRequest, caller: Caller, *, now: float) -> Submitted:
        """Look up keys, or hold them while changes up to their event time may be missing.

        Raises Overloaded if too many keys wait.
        """
        if not self._wait.is_ahead(request):
            return self._runner.submit(request, caller, now=now)
        self._runner.state.check_room(len(self._wait) + request.keys.size)
        self._wait.hold(request, now)
        self._waiting[request.id] = _Waiting(request, caller, request.keys.size)
        self._runner.wake()
        return Submitted(request.id, [], is_done=False)

    def leave(self, lookup_id: LookupId) -> None:
        """The caller of a lookup has left; a no-op if the lookup has ended."""
        waiting = self._waiting.pop(lookup_id, None)
        if waiting is None:
            self._runner.leave(lookup_id)
            return
        self._wait.leave(lookup_id)
        for part in waiting.parts:
            self._runner.leave(part)

    def on_changes(self, changes: Iterable[Change]) -> None:
        """The runner has applied these changes."""
        self._look_up(self._wait.on_changes(changes))

    def on_watermark(self, watermark_ms: int) -> None:
        """All changes before this time are applied."""
        self._look_up(self._wait.on_watermark(watermark_ms))

    def end(self) -> None:
        """The schema is no longer valid: end the wait of all lookups with `schema_changed`."""
        for released in self._wait.release_all():
            self._refuse(released, ErrorCode.SCHEMA_CHANGED)

    def _look_up(self, released: Iterable[Released]) -> None:
        now = self._clock()
        for each in released:
            try:
                self._look_up_part(each, now)
            except Overloaded as error:
                self._refuse(each, error.code)

    def _look_up_part(self, released: Released, now: float) -> None:
        waiting = self._waiting[released.lookup_id]
        part = replace(
            waiting.request,
            id=self._new_id(),
            keys=waiting.request.keys.taken(released.positions),
            event_time_ms=None,
        )

        def deliver(answer: Answer, _is_last: bool) -> None:  # noqa: FBT001  the shape of Deliver
            self._deliver(released, answer)

        caller = replace(waiting.caller, deliver=deliver)
        submitted = self._runner.submit(part, caller, now=now)
        waiting.parts.append(part.id)
        for answer in submitted.answers:
            self._deliver(released, answer)

    def _refuse(self, released: Released, code: ErrorCode) -> None:
        every = np.arange(len(released.positions), dtype=np.int32)
        self._deliver(released, rowless_answer(every, Outcome.ERROR, error=code))

    def _deliver(self, released: Released, answer: Answer) -> None:
        """Pass on an answer to a part, at the positions of the whole lookup."""
        waiting = self._waiting[released.lookup_id]
        waiting.left -= answer.size
        if not waiting.left:
            del self._waiting[released.lookup_id]
        waiting.caller.deliver(answer.placed(released.positions), not waiting.left)
