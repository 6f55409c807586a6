"""All open channels of the process: their limits, their credit and their turns.

The one place that all connections share; nothing in it waits or sends.
"""

from collections.abc import Mapping
from itertools import count

from lookup_core.dimension.batcher import ChannelId
from lookup_core.errors import ErrorCode, Overloaded
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import Open
from lookup_core.protocol.server_channel import ChannelStatistics, ServerChannel
from lookup_core.unknown_dimension import unknown_dimension
from service.engine.dimension import Dimension
from service.stream.stream_watermarks import StreamWatermarks

_RETRY_AFTER_S = 1.0


class ChannelRegistry:
    """Admits channels within the limits and lists them."""

    def __init__(
        self, dimensions: Mapping[str, Dimension], *, max_channels: int, credit_bytes: int
    ) -> None:
        self._dimensions = dimensions
        self._credit: CreditLedger[ChannelId] = CreditLedger(
            credit_bytes, max_channels=max_channels
        )
        self.watermarks = StreamWatermarks()
        self._ids = count(1)  # 0 is the turn of plain requests
        self._channels: dict[
            ChannelId, tuple[int, ServerChannel[ChannelId]]
        ] = {}  # {turn: (connection, book)}

    def dimension(self, name: str) -> Dimension:
        """A dimension by name; raises InvalidRequest that lists those there are."""
        dimension = self._dimensions.get(name)
        if dimension is None:
            raise unknown_dimension(name, self._dimensions)
        return dimension

    def admit(self, opened: Open, *, connection: int) -> tuple[ChannelId, ServerChannel[ChannelId]]:
        """The turn and the book of a new channel.

        Raises Overloaded when there are too many, or no memory for another one.
        """
        if not self._credit.may_lend:
            raise _overloaded("memory is used up; raise limits.memory")
        turn = ChannelId(next(self._ids))
        if self._credit.open(turn) is None:
            raise _overloaded(
                f"{len(self._channels)} channels are open, and have all memory for lookups; raise"
                " limits.memory, or limits.channels if there are as many"
            )
        book = ServerChannel(
            opened.channel, opened.dimension, opened.origin, ledger=self._credit, owner=turn
        )
        self._channels[turn] = (connection, book)
        self.watermarks.opened(turn, opened.dimension)
        return turn, book

    def remove(self, turn: ChannelId) -> None:
        """Take an admitted channel's credit back; harmless when it is gone."""
        self._credit.close(turn)
        self._channels.pop(turn, None)
        self.watermarks.dropped(turn)

    def allow_growth(self, is_allowed: bool) -> None:  # noqa: FBT001 -- a switch
        """Whether channels may open, and get floating credit; those open go on with their own."""
        self._credit.may_lend = is_allowed

    def statistics(self) -> list[ChannelStatistics]:
        """All channels, oldest first."""
        return [book.statistics(connection) for connection, book in self._channels.values()]


def _overloaded(detail: str) -> Overloaded:
    return Overloaded(ErrorCode.OVERLOADED, detail, retry_after_s=_RETRY_AFTER_S)
