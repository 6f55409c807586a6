"""Audit of a running dimension's feed: reads random cached rows again, and acts on the verdict.

The core chooses the keys and compares the rows.
"""

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow as pa
import structlog

from lookup_core.dimension.cache_audit import CacheAudit, Verdict
from lookup_core.dimension.dimension_events import BatchId, QueryOrder, Read
from lookup_core.errors import BackendError
from lookup_core.freshness.feed_health import FeedState
from lookup_core.statistics import FeedStatistics, InvalidationOrigin
from service.engine.pause import jitter
from service.engine.running_dimension import RunningDimension

log = structlog.get_logger()

_AUDIT_QUERY = BatchId(-1)  # a query of no lookup
_POLL_S = 0.5


class FeedAudit:
    """Audits one feed; used by one event loop only."""

    def __init__(self, running: RunningDimension, audit: CacheAudit) -> None:
        self._running = running
        self._audit = audit
        self._state = FeedState.STARTING  # after the last verdict of this run

    async def run(self) -> None:
        """Read random keys at random times, as long as the feed is live, until cancelled."""
        audit, clock, random = self._audit, self._running.parts.clock, np.random.default_rng()
        self._state = FeedState.STARTING
        audit.schedule(clock(), jitter())
        while True:
            # Polls: an event may bring the next audit forward.
            await asyncio.sleep(min(max(audit.next_due() - clock(), 0.0), _POLL_S))
            if clock() < audit.next_due():
                continue
            audit.schedule(clock(), jitter())
            keys = audit.sample(random.random(audit.draw_count))
            may_read = self._state in {FeedState.LIVE, FeedState.INCOMPLETE}
            if may_read and keys.num_rows and not self._running.is_busy:
                await self._read_again(keys)

    def judged(self, state: FeedState, *, reported_until: float, now: float) -> FeedState:
        """The state of the feed after a verdict, which is carried out."""
        self._state = state
        if state is not FeedState.LIVE:
            self._audit.forget(None)  # changes may be missing: no row is a witness
            return state
        verdict = self._audit.judge(reported_until=reported_until, now=now)
        if verdict is not None:
            level = log.info if verdict is Verdict.RESTORED else log.warning
            level("audit.verdict", dimension=self._running.parts.name, verdict=verdict.value)
            if verdict.empties_cache:
                self._running.state.invalidate(None, InvalidationOrigin.AUDIT)
        if self._audit.is_distrusted:
            self._state = FeedState.INCOMPLETE
        return self._state

    def added_to(self, statistics: FeedStatistics) -> FeedStatistics:
        """The statistics of the feed with those of its audit."""
        return replace(
            statistics,
            is_audited=True,
            audited_keys=dict(self._audit.counts),
            distrust=self._audit.distrust(self._running.parts.clock()),
            are_values_refused=self._audit.values.refusal.is_on,
        )

    async def _read_again(self, keys: pa.RecordBatch) -> None:
        """Read distinct keys and compare their rows; a batch with refused keys is halved."""
        batches = [keys]
        while batches:
            keys = batches.pop()
            try:
                read = await self._read(keys)
            except BackendError as error:
                if error.code.is_of_one_key and keys.num_rows > 1:
                    half = keys.num_rows // 2
                    batches += [keys.slice(half), keys.slice(0, half)]
                    continue
                self._audit.on_failure(keys.num_rows)
                name = self._running.parts.name
                log.info("audit.failed", dimension=name, code=error.code, detail=error.detail)
            else:
                self._running.on_server(read.fetched.server)
                self._running.state.on_read(read, self._running.parts.clock())

    async def _read(self, keys: pa.RecordBatch) -> Read:
        running, backend = self._running, self._running.parts.backend
        order = QueryOrder(_AUDIT_QUERY, keys, running.parts.settings.timeout_s)
        async with backend.connections.for_check():
            sent_at = running.parts.clock()
            fetched = await backend.fetch(order, running.schema)
        return Read.of_audit(keys, fetched, sent_at=sent_at)
