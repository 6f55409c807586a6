"""Limits of HTTP requests, and the byte budgets of request bodies and answers."""

from dataclasses import dataclass

from aiohttp import web

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of each listener; the deadlines are absolute, a slow drip does not extend them."""

    connections: int = 256  # requests under way at once, open streams included
    request_keys: int = 100_000
    request_bytes: int = 32 * 1024 * 1024
    header_deadline_s: float = 10.0  # also of a connection that says nothing
    body_deadline_s: float = 30.0
    send_deadline_s: float = 30.0
    linger_s: float = 2.0  # lets a caller who still sends read why it was refused


RETRY_AFTER_S = 1.0
_UNBOUNDED_BYTES = 1 << 62


class BodyByteBudget:
    """The bytes that all requests share; one for all listeners."""

    def __init__(self, total_bytes: int = _UNBOUNDED_BYTES) -> None:
        self._total_bytes = total_bytes
        self._used_bytes = 0

    def take(self, more_bytes: int, *, held_bytes: int) -> None:
        """Make room for more of a body that has so much already.

        Raises Overloaded, before anything was taken, while others have what it wants.
        """
        is_alone = self._used_bytes == held_bytes
        if not is_alone and self._used_bytes + more_bytes > self._total_bytes:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "bodies of other requests take the memory for it; come again, or send less",
                retry_after_s=RETRY_AFTER_S,
            )
        self._used_bytes += more_bytes

    def give_back(self, held_bytes: int) -> None:
        """A body that held so much has been read, or given up."""
        self._used_bytes -= held_bytes
        assert self._used_bytes >= 0


class AnswerByteBudget:
    """The bytes that all requests share; one for all listeners."""

    def __init__(self, total_bytes: int = _UNBOUNDED_BYTES) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0


class AnswerReservation:
    """What one request holds of the room; all of it comes back by `only(0)`."""

    def __init__(self, room: AnswerByteBudget) -> None:
        self._room = room
        self._held_bytes = 0
        self._keys = 0

    def take(self, answer: Answer) -> None:
        """Make room for one more answer, or raise, before anything was taken.

        InvalidRequest (`answer_too_large`) when this request alone is too large, Overloaded while
        others have what it wants.
        """
        self._take(answer.size, answer.total_bytes)

    def take_text(self, text: bytes) -> None:
        """The same for one row's answer as it is sent, which is held instead of all before."""
        self._hold(-self._held_bytes)
        self._take(1, len(text))

    def only(self, count_bytes: int) -> None:
        """Hold so many bytes from now on, whether there is room or not."""
        self._hold(count_bytes - self._held_bytes)

    def _take(self, keys: int, more_bytes: int) -> None:
        if self._held_bytes + more_bytes > self._room.total_bytes:
            raise self._too_large(keys, more_bytes)
        if self._room.used_bytes + more_bytes > self._room.total_bytes:
            raise Overloaded(
                ErrorCode.OVERLOADED,
                "answers of other requests take the memory for it; come again, or ask for less",
                retry_after_s=RETRY_AFTER_S,
            )
        self._keys += keys
        self._hold(more_bytes)

    def _hold(self, more_bytes: int) -> None:
        self._held_bytes += more_bytes
        self._room.used_bytes += more_bytes

    def _too_large(self, more_keys: int, more_bytes: int) -> InvalidRequest:
        total_bytes = self._room.total_bytes
        fitting = (self._keys + more_keys) * total_bytes // (self._held_bytes + more_bytes)
        remedy = f"ask for at most {fitting} keys at once" if fitting else "raise limits.memory"
        return InvalidRequest(
            ErrorCode.ANSWER_TOO_LARGE,
            f"the answer has more than {total_bytes} bytes (limits.memory / 8); {remedy}",
        )


ANSWER_HOLD = web.RequestKey("answer_hold", AnswerReservation)
