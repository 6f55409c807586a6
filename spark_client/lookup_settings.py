"""Settings of a pass and of its lookups, and the mapping of key columns; they travel with tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lookup_core.answer import Outcome
from lookup_core.compatibility import TextEnum
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.keys.typed_keys import EXACT_NAMES
from lookup_core.lookup_options import NO_OPTIONS, LookupOptions
from lookup_core.protocol.client_channel import ClientChannel
from lookup_core.protocol.frames import TraceParent


class OutputMode(TextEnum):
    """The order in which records leave."""

    ORDERED = "ordered"
    UNORDERED = "unordered"
    KEY_ORDERED = "key_ordered"


class Via(TextEnum):
    """How the records pass through Python."""

    AUTO = "auto"  # chosen when the DataFrame is known
    BATCH = "batch"  # with all columns
    UDF = "udf"  # only the columns that the lookups need


class FailurePolicy(TextEnum):
    """The effect of a failed lookup on its record."""

    FAIL = "fail"  # the task fails
    NULL = "null"  # the dimension's columns are null
    DEFAULT = "default"  # the record gets the dimension's default row


class JoinType(TextEnum):
    """Which records leave, and whether with the dimension's columns."""

    LEFT = "left"  # all
    INNER = "inner"  # those with a row
    SEMI = "semi"  # those with a row, without its columns
    ANTI = "anti"  # those without a row

    @property
    def has_columns(self) -> bool:
        """Whether the output has the dimension's columns."""
        return self in {JoinType.LEFT, JoinType.INNER}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a lookup needs of its dimension."""

    is_as_of: bool = False  # versions
    expands: bool = False  # all rows of a key
    wants_default: bool = False  # a default row
    options: LookupOptions = NO_OPTIONS

    @property
    def has_lists(self) -> bool:
        """Whether the sidecar must send each column as a list."""
        return self.is_as_of or self.expands

    def check(self, channel: ClientChannel, dimension: str) -> None:
        """Raise InvalidRequest if the dimension lacks one, or has versions without `is_as_of`."""
        _check_versions(channel.versions, is_as_of=self.is_as_of, dimension=dimension)
        if self.expands and not channel.has_all_rows:
            raise InvalidRequest(
                ErrorCode.BAD_REQUEST,
                f"{dimension!r} sends one row of a key, or its sidecar is too old for expand;"
                " omit expand, or set match: all in the sidecar's configuration",
            )
        if self.expands and not len(channel.columns):
            detail = f"{dimension!r} has no columns besides its key, so there is nothing to expand"
            raise InvalidRequest(ErrorCode.BAD_REQUEST, f"{detail}; omit expand")
        if self.wants_default and channel.default is None:
            raise InvalidRequest(
                ErrorCode.BAD_REQUEST,
                f"{dimension!r} has no default row for on_timeout or on_error, or its sidecar is"
                ' too old to send it; use "null", or set default in the sidecar\'s configuration',
            )


def _check_versions(versions: VersionColumns | None, *, is_as_of: bool, dimension: str) -> None:
    """Raise InvalidRequest unless the lookup has a time exactly if the dimension has versions."""
    if is_as_of and versions is None:
        detail = f"{dimension!r} has no versions, or its sidecar is too old for them; omit as_of"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    if versions is not None and not is_as_of:
        raise InvalidRequest(
            ErrorCode.BAD_REQUEST,
            f"{dimension!r} has versions ({', '.join(versions.names)}); name the records' time"
            " column with lookup_join(as_of=…)",
        )


@dataclass(frozen=True, slots=True)
class PassSettings:
    """Settings of one pass over a partition, for all lookups of its records."""

    mode: OutputMode = OutputMode.ORDERED
    capacity: int = 20_000  # records in flight
    max_bytes: int = 64 * 1024 * 1024  # records and answers in flight; one output batch
    pooled_rows: int = 10_000  # small batches that are joined, and that are read ahead
    pooled_bytes: int = 8 * 1024 * 1024  # as above
    timeout_s: float = 5.0  # for all lookups of a record
    event_time: int | None = None  # position in the input of the event times; None: no watermarks
    watermark_delay_ms: int = 0
    watermark_interval_ms: int | None = None  # None: watermarks at the ends of batches only


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """Settings of one lookup of a pass."""

    on_timeout: FailurePolicy = FailurePolicy.FAIL
    on_error: FailurePolicy = FailurePolicy.FAIL
    as_of: int | None = None  # position in the input of the time of each record's version
    trace: TraceParent | None = None  # None: the job's
    show_keys: bool = True  # in the errors of failed lookups
    options: LookupOptions = NO_OPTIONS

    def policy(self, outcome: Outcome) -> FailurePolicy:
        """The policy for lookups that fail with this outcome."""
        return self.on_timeout if outcome is Outcome.TIMEOUT else self.on_error

    @property
    def wants_default(self) -> bool:
        """Whether failed lookups get the default row."""
        return FailurePolicy.DEFAULT in {self.on_timeout, self.on_error}

    def check_timeout(self, timeout_s: float) -> None:
        """Raise ValueError if the first retry of a missing key is later than the timeout."""
        delay_s = (self.options.retry_delay_ms or 0) / 1000
        if self.options.max_retries and delay_s >= timeout_s:
            raise ValueError(
                f"retry_missing.delay is {delay_s:g} s, and timeout is {timeout_s:g} s, so no retry"
                " can run; shorten the delay or raise timeout="
            )

    def needs(self, *, is_as_of: bool = False, expands: bool = False) -> Needs:
        """What the lookup needs of its dimension."""
        return Needs(is_as_of, expands, self.wants_default, self.options)


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Pairs of a record's column and the name under which its value is sent."""

    columns: tuple[str, ...]  # the records'; the texts of expressions
    names: tuple[str, ...]  # the key's; the records' own where the user gave no others
    are_exact: bool = False  # the user gave the names, so none may be wrong

    @property
    def metadata(self) -> dict[bytes, bytes] | None:
        """Metadata of the key's schema on the wire."""
        return EXACT_NAMES if self.are_exact else None

    @contextmanager
    def named_in_refusals(self) -> Iterator[None]:
        """Name the records' columns in a refusal of the key, which has those of the dimension."""
        try:
            yield
        except InvalidRequest as error:
            if error.code is ErrorCode.KEY_TYPE and self.columns:
                error.add_remedy(f"on= joins by {', '.join(self.columns)}")
            raise


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a lookup's key: a column of the records, or of an earlier lookup's rows."""

    position: int
    lookup: int | None = None  # None: of the records
