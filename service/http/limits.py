"""Limits of HTTP requests, and what each request holds of them."""

from dataclasses import dataclass

from aiohttp import web

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded
from service.engine.tracer import CallerSpan

_UNBOUNDED_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of each listener; deadlines are absolute, so a slow transfer does not extend them.

    A body or a response must also pass at least `rate_bytes`, or its end, in each `rate_period_s`.
    """

    connections: int = 256  # concurrent requests, open streams included
    request_keys: int = 100_000
    request_bytes: int = 32 * 1024 * 1024
    header_deadline_s: float = 10.0  # also for an idle connection
    body_deadline_s: float = 30.0
    send_deadline_s: float = 30.0
    rate_period_s: float = 5.0
    rate_bytes: int = 8 * 1024
    linger_s: float = 2.0  # lets a client that still sends read the refusal


@dataclass(slots=True, eq=False)
class BodyByteBudget:
    """Bytes of request bodies in memory; shared by all listeners."""

    total_bytes: int = _UNBOUNDED_BYTES
    _used_bytes: int = 0

    def take(self, more_bytes: int, *, held_bytes: int) -> None:
        """Take bytes for a body that holds `held_bytes` already.

        Raises Overloaded, with nothing taken, if other bodies leave too little. A single body is
        always admitted.
        """
        is_alone = self._used_bytes == held_bytes
        if not is_alone and self._used_bytes + more_bytes > self.total_bytes:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "other request bodies use limits.memory / 8; retry later, or send a smaller body",
            )
        self._used_bytes += more_bytes

    def give_back(self, held_bytes: int) -> None:
        """Release the bytes of a body that was read or abandoned."""
        self._used_bytes -= held_bytes


@dataclass(slots=True, eq=False)
class AnswerByteBudget:
    """Bytes of answers in memory; shared by all listeners."""

    total_bytes: int = _UNBOUNDED_BYTES
    used_bytes: int = 0


@dataclass(slots=True, eq=False)
class AdmissionLimit:
    """The requests that one listener runs at once; probes and incomplete bodies do not count."""

    max_requests: int
    running: int = 0


@dataclass(slots=True, eq=False)
class RequestResources:
    """What one request holds: an admission of its listener, bytes of the answer budget, a span."""

    admission_limit: AdmissionLimit
    answer_budget: AnswerByteBudget
    span: CallerSpan | None = None  # if it is traced
    _is_admitted: bool = False
    _answer_bytes: int = 0
    _answer_keys: int = 0

    def admit(self) -> None:
        """Take an admission; raises Overloaded if no more requests may run."""
        limit = self.admission_limit
        if limit.running >= limit.max_requests:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{limit.max_requests} requests are running, which is limits.connections",
            )
        limit.running += 1
        self._is_admitted = True

    def return_admission(self) -> None:
        """Return the admission; a no-op without one."""
        if self._is_admitted:
            self.admission_limit.running -= 1
            self._is_admitted = False

    def take_answer(self, answer: Answer) -> None:
        """Take the bytes of one more answer.

        Raises, with nothing taken: InvalidRequest (`answer_too_large`) if this request alone is too
        large, Overloaded if other requests leave too little.
        """
        self._take(answer.size, answer.total_bytes)

    def take_row_text(self, text: bytes) -> None:
        """Hold the reply for one row instead of its answer; raises as `take_answer` does."""
        if self._answer_bytes:
            self.hold_answer_bytes(0)
        self._take(1, len(text))

    def hold_answer_bytes(self, count_bytes: int) -> None:
        """Hold `count_bytes` from now on, even beyond the budget."""
        self.answer_budget.used_bytes += count_bytes - self._answer_bytes
        self._answer_bytes = count_bytes

    def release(self) -> None:
        """Return admission and bytes."""
        self.answer_budget.used_bytes -= self._answer_bytes
        self._answer_bytes = 0
        self.return_admission()

    def _take(self, keys: int, more_bytes: int) -> None:
        budget, answer_bytes = self.answer_budget, self._answer_bytes + more_bytes
        if answer_bytes > budget.total_bytes:
            raise self._too_large(keys, answer_bytes)
        if budget.used_bytes + more_bytes > budget.total_bytes:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "other answers use limits.memory / 8; retry later, or request fewer keys",
            )
        budget.used_bytes += more_bytes
        self._answer_bytes = answer_bytes
        self._answer_keys += keys

    def _too_large(self, more_keys: int, answer_bytes: int) -> InvalidRequest:
        total_bytes = self.answer_budget.total_bytes
        fitting = (self._answer_keys + more_keys) * total_bytes // answer_bytes
        remedy = f"request at most {fitting} keys at once" if fitting else "raise limits.memory"
        return InvalidRequest(
            ErrorCode.ANSWER_TOO_LARGE,
            f"the answer has more than {total_bytes} bytes (limits.memory / 8); {remedy}",
        )


RESOURCES = web.RequestKey("resources", RequestResources)
