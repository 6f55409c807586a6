"""Ports of the client: `Transport` (messages to a sidecar) and `LookupChannel` (one channel).

`web_socket` implements the first, `channel_session` the second.
"""

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from lookup_core.cache.cached_answers import CachedAnswers
from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys


class Transport(Protocol):
    """Whole messages to and from one sidecar, over one connection."""

    def send(self, message: bytes) -> None:
        """Send without blocking; from any thread. A no-op after a loss or `close`."""

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """The messages that have come; waits at most `timeout_s`; from one thread only.

        Raises SidecarUnreachable when the connection is lost, ProtocolViolation when the peer
        closed it because of the client's messages.
        """

    def wake(self) -> None:
        """End a waiting `receive`, or the next one; from any thread."""

    def close(self) -> None:
        """Close, without waiting for the peer; a no-op if closed."""

    def disown(self) -> None:
        """In a forked child: close the descriptors; the parent continues to use them."""


class LookupChannel(Protocol):
    """One open channel, as the operator uses it, from one thread."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of an answer with rows."""

    @property
    def versions(self) -> VersionColumns | None:
        """The columns with the validity of a version; None if rows have no versions."""

    @property
    def has_all_rows(self) -> bool:
        """Whether columns are lists of the values of all rows of a key."""

    @property
    def default(self) -> pa.RecordBatch | None:
        """The dimension's default row; None if it has none, or if OPEN did not request it."""

    def explanation(self, code: ErrorCode) -> str:
        """Why keys have this code, and the remedy, as far as the sidecar knows."""

    def cached(self, keys: pa.RecordBatch) -> CachedAnswers | None:
        """The answers of the shared cache to keys, which may repeat.

        None without such a cache, and if `look_up` of the distinct keys is cheaper.
        """

    def look_up(self, keys: SentKeys, *, skips_cache: bool = False) -> None:
        """Look up distinct keys, without blocking; `answers` returns the results.

        `skips_cache`: the shared cache has been read.
        """

    def mark(self, watermark_ms: int) -> None:
        """Send a watermark behind the earlier lookups, without blocking."""

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """Answers that have come; waits for some, at most `timeout_s`, None without limit.

        Raises the SidelookError that ended the channel, once all answers are returned:
        InvalidRequest, ProtocolViolation, BackendError, or SidecarUnreachable after the connect
        timeout without a connection.
        """

    def abandon(self, question: QuestionId) -> None:
        """Cancel this question; a no-op if it is answered."""

    def report_idle(self) -> None:
        """Make the channel idle until `look_up` or `mark`, without blocking."""

    def close(self) -> None:
        """Close the channel and cancel its lookups, without blocking; a no-op if closed."""
