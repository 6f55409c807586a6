"""Settings of one lookup join, and the mapping of its key columns; they travel with the task."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lookup_core.compatibility import TextEnum
from lookup_core.keys.typed_keys import EXACT_NAMES
from lookup_core.protocol.frames import TraceParent

On = str | Sequence[str] | Mapping[str, str]


class OutputMode(TextEnum):
    """The order in which records leave."""

    ORDERED = "ordered"
    UNORDERED = "unordered"
    KEY_ORDERED = "key_ordered"


class FailurePolicy(TextEnum):
    """The effect of a failed lookup on its record."""

    FAIL = "fail"  # the task fails
    NULL = "null"  # the dimension's columns are null


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """Bounds and policies of one lookup join."""

    mode: OutputMode = OutputMode.ORDERED
    capacity: int = 20_000  # records in flight
    max_bytes: int = 64 * 1024 * 1024  # of records and answers in flight, and of one output batch
    timeout_s: float = 5.0
    on_timeout: FailurePolicy = FailurePolicy.FAIL
    on_error: FailurePolicy = FailurePolicy.FAIL
    is_inner: bool = False
    event_time: int | None = None  # position in the input of the event times; None: no watermarks
    watermark_delay_ms: int = 0
    watermark_interval_ms: int | None = None  # None: watermarks at the ends of batches only
    as_of: int | None = None  # position in the input of the time of each record's version
    trace: TraceParent | None = None  # None: the job's
    show_keys: bool = True  # in the errors of failed lookups

    def __post_init__(self) -> None:
        if type(self.capacity) is not int or self.capacity < 1:
            raise ValueError(f"capacity is whole records, at least 1, not {self.capacity!r}")
        if type(self.timeout_s) not in {int, float} or not 0 < self.timeout_s < math.inf:
            raise ValueError(f"timeout is seconds, more than 0, not {self.timeout_s!r}")


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Pairs of a record's column and the name under which its value is sent."""

    columns: tuple[str, ...]  # of the records
    names: tuple[str, ...]  # of the key; the records' own names where the user gave no others
    are_exact: bool = False  # the user gave the names, so none may be wrong

    @property
    def metadata(self) -> dict[bytes, bytes] | None:
        """Metadata of the key's schema on the wire."""
        return EXACT_NAMES if self.are_exact else None


def join_keys(on: On) -> JoinKeys:
    """Parse `"column"`, `["a", "b"]` or `{"record's column": "key's column"}`; or ValueError."""
    match on:
        case str():
            pairs = {on: on}
        case Mapping():
            pairs = dict(on)
        case Sequence():
            pairs = {name: name for name in on}
            if len(pairs) < len(on):
                raise ValueError(f"on names a column twice: {', '.join(on)}")
        case _:
            raise ValueError(f"on is a column's name, a list or a dict of names, not {on!r}")
    if not pairs:
        raise ValueError("on must name at least one column")
    return JoinKeys(tuple(pairs), tuple(pairs.values()), are_exact=isinstance(on, Mapping))
