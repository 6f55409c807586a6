"""Reads the ranges of a table, a page at a time, in a session that sees the snapshot.

While one page is taken the server makes the next. Which ranges there are is known to the
enumerator, how pages become columns to `postgres_snapshot_rows`.
"""

import asyncio
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Self

from lookup_core.changelog.change import RowChanges
from lookup_core.sources.split import Split
from service.backends.postgres_connections import Records
from service.backends.postgres_settings import PostgresSettings
from service.sources.interface import SplitPiece
from service.sources.pending_read import WAIT_S, PendingRead
from service.sources.postgres_snapshot_query import postgres_snapshot_query
from service.sources.postgres_snapshot_rows import postgres_snapshot_rows
from service.sources.postgres_snapshot_session import PostgresSnapshotSession
from service.sources.postgres_snapshot_split import PostgresSnapshotSplit


class PostgresSnapshotReader:
    """One split at a time, which is read to its end before the next is assigned."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._session = PostgresSnapshotSession(settings)
        self._split: PostgresSnapshotSplit | None = None
        self._position = self._page = 0
        self._is_paused = False
        self._coming: PendingRead[Records] = PendingRead()  # the page that is asked for

    async def __aenter__(self) -> Self:
        """Nothing to prepare: which snapshot is meant is said with the first split."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let go of the page under way, and of the connection."""
        await self._coming.cancel()
        await self._session.close()

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this split next; raises BackendError, also when the snapshot is gone."""
        assert isinstance(split, PostgresSnapshotSplit)
        if not self._session.is_open:
            await self._session.open(split.picture.snapshot_id)
        self._split, self._position = split, position or 0
        self._page = split.page_at[self._position]

    async def read(self) -> Sequence[SplitPiece]:
        """The next page, or a sign of life while it is under way; raises BackendError.

        Cancellation leaves the page to the next call.
        """
        if self._split is None or self._is_paused:
            await asyncio.sleep(WAIT_S)
            return []
        self._ask(self._split)
        if not self._coming.is_begun:
            return [self._piece(self._split)]
        records = await self._coming.take()
        if records is None:
            return [SplitPiece(self._split.id, self._position, total=self._split.total)]
        return [self._taken(self._split, tuple(records[0]))]

    def pause(self, split_ids: Collection[str]) -> None:
        """Read nothing of the split if it is named, until it is not."""
        self._is_paused = self._split is not None and self._split.id in split_ids

    def _ask(self, split: PostgresSnapshotSplit) -> None:
        if self._coming.is_begun or self._page == split.page_count:
            return
        first, end = split.bounds[self._page], split.bounds[self._page + 1]
        picture = split.picture
        query = postgres_snapshot_query(picture.table, picture.range_columns, first=first, end=end)
        arguments = [*(first or ()), *(end or ())]
        self._coming.begin(self._session.fetch(query, arguments))

    def _taken(self, split: PostgresSnapshotSplit, blocks: Sequence[bytes | None]) -> SplitPiece:
        self._page += 1
        self._ask(split)
        changes = postgres_snapshot_rows(blocks, split.picture.table)
        self._position += changes.keys.num_rows
        split.page_at[self._position] = self._page
        return self._piece(split, changes)

    def _piece(self, split: PostgresSnapshotSplit, changes: RowChanges | None = None) -> SplitPiece:
        has_rows = changes is not None and changes.keys.num_rows > 0
        is_finished = self._page == split.page_count
        return SplitPiece(
            split_id=split.id,
            position=self._position,
            changes=[changes] if changes is not None and has_rows else [],
            nbytes=changes.keys.nbytes + changes.rows.nbytes if changes is not None else 0,
            is_caught_up=is_finished,
            is_finished=is_finished,
            total=split.total,
            snapshot=split.picture.snapshot,
        )
