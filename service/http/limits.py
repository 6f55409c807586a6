"""Limits of HTTP requests (keys, bytes, deadlines), and byte budgets of bodies and answers."""

from dataclasses import dataclass

from aiohttp import web

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded


@dataclass(frozen=True, slots=True)
class Limits:
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
class AdmissionLimit:
    """The requests that one listener runs at once; probes and incomplete bodies do not count."""

    max_requests: int
    running: int = 0

    def check(self) -> None:
        """Raise Overloaded if no more requests may run."""
        if self.running >= self.max_requests:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                f"{self.max_requests} requests are running, which is limits.connections",
            )


@dataclass(slots=True, eq=False)
class Admission:
    """The place of one request within the limit."""

    limit: AdmissionLimit
    _is_held: bool = False

    def take(self) -> None:
        """Take the place; raises Overloaded if no more requests may run."""
        self.limit.check()
        self.limit.running += 1
        self._is_held = True

    def give_back(self) -> None:
        """Return the place; a no-op if it is not held."""
        self.limit.running -= self._is_held
        self._is_held = False


ADMISSION = web.RequestKey("admission", Admission)

_UNBOUNDED_BYTES = 1 << 62


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
        assert self._used_bytes >= 0


@dataclass(slots=True, eq=False)
class AnswerByteBudget:
    """Bytes of answers in memory; shared by all listeners."""

    total_bytes: int = _UNBOUNDED_BYTES
    used_bytes: int = 0


@dataclass(slots=True, eq=False)
class AnswerReservation:
    """The part of the budget that one request holds; `hold(0)` releases it."""

    budget: AnswerByteBudget
    _held_bytes: int = 0
    _keys: int = 0

    def take(self, answer: Answer) -> None:
        """Take the bytes of one more answer.

        Raises, with nothing taken: InvalidRequest (`answer_too_large`) if this request alone is too
        large, Overloaded if other requests leave too little.
        """
        self._take(answer.size, answer.total_bytes)

    def take_text(self, text: bytes) -> None:
        """Hold the reply for one row instead of its answer; raises as `take` does."""
        self.hold(0)
        self._take(1, len(text))

    def hold(self, count_bytes: int) -> None:
        """Hold `count_bytes` from now on, even beyond the budget."""
        self.budget.used_bytes += count_bytes - self._held_bytes
        self._held_bytes = count_bytes

    def _take(self, keys: int, more_bytes: int) -> None:
        if self._held_bytes + more_bytes > self.budget.total_bytes:
            raise self._too_large(keys, more_bytes)
        if self.budget.used_bytes + more_bytes > self.budget.total_bytes:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "other answers use limits.memory / 8; retry later, or request fewer keys",
            )
        self._keys += keys
        self.hold(self._held_bytes + more_bytes)

    def _too_large(self, more_keys: int, more_bytes: int) -> InvalidRequest:
        total_bytes = self.budget.total_bytes
        fitting = (self._keys + more_keys) * total_bytes // (self._held_bytes + more_bytes)
        remedy = f"request at most {fitting} keys at once" if fitting else "raise limits.memory"
        return InvalidRequest(
            ErrorCode.ANSWER_TOO_LARGE,
            f"the answer has more than {total_bytes} bytes (limits.memory / 8); {remedy}",
        )


ANSWER_RESERVATION = web.RequestKey("answer_reservation", AnswerReservation)
