"""Followed server: the database server that answers lookups, and that of the change feed.

Decides whether a reply is of a later server, and whether ids of both servers are comparable.
"""

from lookup_core.freshness.server_identity import ServerEpoch, ServerIdentity
from lookup_core.freshness.table_snapshot import IdRelation


class FollowedServer:
    """The servers of one dimension; a server of a later epoch replaces the former one."""

    def __init__(self, server: ServerEpoch) -> None:
        self.lookups = server  # the one that has answered last, in the latest epoch; for reading
        self._feed: ServerIdentity | None = None  # whose transaction ids the feed reports

    @property
    def relation(self) -> IdRelation:
        """Whether ids of the feed may be compared with those of lookups."""
        if self._feed is None:
            return IdRelation.UNKNOWN
        return self._feed.ids_in(self.lookups.identity)

    def is_former(self, server: ServerEpoch) -> bool:
        """Whether another server has replaced this one."""
        return server.number < self.lookups.number

    def has_left_feed(self, *, since: int) -> bool:
        """Whether lookups have another server than the feed, and had not in this epoch."""
        if self._feed is None or self.lookups.number <= since:
            return False
        return self.relation is not IdRelation.COMPARABLE

    def on_reply(self, server: ServerEpoch) -> bool:
        """A server has answered; returns whether it replaces the former one."""
        is_later = server.number > self.lookups.number
        if not self.is_former(server):
            self.lookups = server
        return is_later

    def on_feed(self, server: ServerIdentity) -> None:
        """The feed reports the transaction ids of this server."""
        self._feed = server
