"""The ports of the client: what it needs of a connection, and what the operator needs of a channel.

Behind `Transport` stand `web_socket` and, for tests, `fake_sidecar`; behind `LookupChannel` stands
`channel_session`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.protocol.backlog import ChannelAnswer
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys


class Transport(Protocol):
    """Whole messages to and from one sidecar, over one connection."""

    def send(self, message: bytes) -> None:
        """Send without waiting; from any thread. After a loss it does nothing."""

    def receive(self, timeout_s: float) -> Sequence[bytes]:
        """The messages that came in, at the latest after `timeout_s`; from one thread only.

        Raises SidecarUnreachable when the connection is lost, ProtocolViolation when the peer
        closed it because of what we sent.
        """

    def wake(self) -> None:
        """Let a `receive` that waits return early; from any thread."""

    def close(self) -> None:
        """Close, without waiting for the peer."""

    def disown(self) -> None:
        """After a fork, in the child: let go of the descriptors; the parent goes on using them."""


class LookupChannel(Protocol):
    """One open channel, as the operator uses it, from one thread."""

    @property
    def columns(self) -> pa.Schema:
        """What an answer with rows consists of."""

    @property
    def versions(self) -> VersionColumns | None:
        """Which of the columns say when a version is valid; None if rows have no versions."""

    def ask(self, asked: SentKeys) -> None:
        """Look up distinct keys; the answers come out of `answers`. Does not wait."""

    def mark(self, watermark_ms: int) -> None:
        """Tell a watermark, behind what was asked before it. Does not wait."""

    def answers(self, timeout_s: float | None) -> Sequence[ChannelAnswer]:
        """Answers that came in; waits for some, at most `timeout_s`, None for as long as it takes.

        Raises SidelookError when the channel cannot go on: InvalidRequest, ProtocolViolation,
        BackendError, or SidecarUnreachable after the connect timeout without a connection.
        """

    def abandon(self, question: QuestionId) -> None:
        """Nobody waits for this question any more."""

    def awaiting_input(self) -> AbstractContextManager[None]:
        """While the task waits for its input; after some time that makes the channel idle.

        It is active again before the next `ask` or `mark`.
        """

    def close(self) -> None:
        """Give the channel back; cancels what is unanswered. Does not wait; harmless twice."""
