"""Recent errors and query counts of one dimension; contains neither keys nor values."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lookup_core.answer import Answer
from lookup_core.errors import BackendError, ErrorCode
from service.engine.observer import Observer, QueryStatus

MOST = 20
EPISODE_S = 60.0  # an error that repeats within this time is no new entry


@dataclass(frozen=True, slots=True)
class RecentError:
    """Errors of one kind in one episode; times are seconds on the clock of the record."""

    code: ErrorCode
    detail: str
    first_at: float
    last_at: float
    queries: int = 0  # failed attempts
    keys: int = 0  # failed keys of lookups


class RecentErrors:
    """The last `MOST` errors; equal ones within `EPISODE_S` of each other are one entry."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.now = clock
        self._errors: deque[RecentError] = deque(maxlen=MOST)  # in the order of their last event

    def on_query_failed(self, error: BackendError) -> None:
        """An attempt of a query failed, or left out rows."""
        now = self.now()
        known = self._episode(error.code, error.detail, now)
        # The backend's detail says more than the meaning of the code.
        self._errors.append(
            replace(known, detail=error.detail, queries=known.queries + 1, last_at=now)
        )

    def on_answers(self, answers: Sequence[Answer]) -> None:
        """Lookups were answered, most of them without errors."""
        for answer in answers:
            if answer.errors:
                for code, keys in Counter(answer.errors.values()).items():
                    self._on_keys_failed(code, keys)

    def latest(self) -> list[RecentError]:
        """The recorded errors, the last one first."""
        return sorted(self._errors, key=lambda error: error.last_at, reverse=True)

    def reason(self, code: ErrorCode) -> str:
        """The detail of the last error with this code, or the explanation of the code."""
        details = (error.detail for error in self.latest() if error.code is code)
        return next(details, code.explanation)

    def _on_keys_failed(self, code: ErrorCode, keys: int) -> None:
        now = self.now()
        known = self._episode(code, code.explanation, now)
        self._errors.append(replace(known, keys=known.keys + keys, last_at=now))

    def _episode(self, code: ErrorCode, detail: str, now: float) -> RecentError:
        """The entry of the present episode, removed from the list, or a new one."""
        for error in self._errors:
            if error.code is code and now - error.last_at <= EPISODE_S:
                self._errors.remove(error)
                return error
        return RecentError(code, detail, first_at=now, last_at=now)


class DimensionRecord:
    """Errors and query counts over all schemas of a dimension; its observer gets the events."""

    def __init__(self, observer: Observer | None, clock: Callable[[], float]) -> None:
        self.observer = observer
        self.errors = RecentErrors(clock)
        self.queries = 0  # every attempt counts
        self.batch_keys = 0  # distinct keys of all these queries

    def query_ended(
        self, dimension: str, *, keys: int, seconds: float, result: QueryStatus
    ) -> None:
        """Count the query, whatever its result."""
        self.queries += 1
        self.batch_keys += keys
        if self.observer is not None:
            self.observer.query_ended(dimension, keys=keys, seconds=seconds, result=result)
