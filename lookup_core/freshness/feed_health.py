"""Health of a change feed, and the staleness limit that a dimension's settings imply.

Reads no feed: signs of life come in with the time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lookup_core.cache.shared_layout import LEASE_S
from lookup_core.compatibility import TextEnum
from lookup_core.settings import (
    CacheMode,
    CacheSettings,
    DimensionSettings,
    FeedSettings,
    ReloadSettings,
)

TRUST_S = LEASE_S  # after a longer pause of the process, trust is decided again before any hit
_DAY_S = 86_400.0


class FeedState(TextEnum):
    """Whether a feed reports all changes; `silent` means stalled."""

    STARTING = "starting"  # some change from before its start is not read yet
    LIVE = "live"
    SILENT = "silent"  # stalled: changes may be missing
    INCOMPLETE = "incomplete"  # an audit found a change that it did not report


@dataclass(slots=True)
class _SplitHealth:
    heard_at: float
    requested_at: float = -math.inf  # when the newest request with an answer was sent
    is_caught_up: bool = False


class FeedHealth:
    """The splits of one feed; `now` is monotonic seconds.

    It is live while each split is caught up and has given a sign of life within `max_silence_s`.
    With heartbeats, the source's latest time must also be at most `max_staleness_s` old. After a
    pause of the process, each source must first answer a later request: a response from before may
    have waited in a socket.
    """

    def __init__(self, settings: FeedSettings) -> None:
        self._max_silence_s = settings.max_silence_s
        self._max_staleness_s = settings.max_staleness_s
        self._splits: dict[str, _SplitHealth] = {}
        self._source_spoke_at = -math.inf
        self._ran_at = math.inf
        self._resumed_at = -math.inf
        self.doubt: str | None = None  # why its source may not report the table, if it may not

    def on_run(self, now: float) -> bool:
        """Note that the process runs, which is due at each interval; True after a pause."""
        has_paused = now - self._ran_at >= TRUST_S
        self._ran_at = now
        if has_paused:
            self._resumed_at = now
        return has_paused

    def on_splits(self, split_ids: Iterable[str], now: float) -> None:
        """These are all splits; new ones are not caught up."""
        self._splits = {
            split_id: self._splits.get(split_id, _SplitHealth(now)) for split_id in split_ids
        }

    def on_piece(
        self,
        split_id: str,
        *,
        is_caught_up: bool,
        silent_s: float,
        source_age_s: float | None,
        now: float,
        requested_s: float | None = None,
    ) -> None:
        """A split was read, with changes or without; a no-op for a split that is gone.

        `silent_s` is the time since its source's last sign of life, `source_age_s` the age of the
        source's latest time (None if it has none), `requested_s` that of the newest request that
        the source has answered (None: `silent_s`).
        """
        split = self._splits.get(split_id)
        if split is None:
            return
        split.heard_at = max(split.heard_at, now - silent_s)
        requested_s = silent_s if requested_s is None else requested_s
        split.requested_at = max(split.requested_at, now - requested_s)
        split.is_caught_up = is_caught_up
        if source_age_s is not None:
            self._source_spoke_at = max(self._source_spoke_at, now - source_age_s)

    def state(self, now: float) -> FeedState:
        """The state now."""
        if not self._splits or not all(split.is_caught_up for split in self._splits.values()):
            return FeedState.STARTING
        is_proved = all(s.requested_at >= self._resumed_at for s in self._splits.values())
        return FeedState.LIVE if is_proved and now < self._silent_from() else FeedState.SILENT

    def next_deadline(self, now: float) -> float | None:
        """When it stalls without a sign of life; None while it is not live."""
        return self._silent_from() if self.state(now) is FeedState.LIVE else None

    def trusted_until(self, now: float) -> float:
        """How long rows may be served without another call, at most `TRUST_S`."""
        return min(now + TRUST_S, self._silent_from())

    def reported_until(self) -> float:
        """While it is live, all changes until then are reported; -inf before a sign of life."""
        heard_at = self._heard_at()
        return heard_at if self._max_staleness_s is None else min(heard_at, self._source_spoke_at)

    def _silent_from(self) -> float:
        silent_from = self._heard_at() + self._max_silence_s
        if self._max_staleness_s is None:
            return silent_from
        return min(silent_from, self._source_spoke_at + self._max_staleness_s)

    def _heard_at(self) -> float:
        return min((split.heard_at for split in self._splits.values()), default=-math.inf)


def staleness_limit_s(settings: DimensionSettings, *, is_followed: bool) -> float | None:
    """The staleness limit in seconds; None without a cache, or if a full table never changes.

    With periodic loads the duration of a load comes on top.
    """
    cache = settings.cache
    if cache.mode is CacheMode.NONE:
        return None
    if is_followed:
        feed = settings.feed
        return feed.max_silence_s if feed.max_staleness_s is None else feed.max_staleness_s
    if cache.mode is CacheMode.FULL:
        return _between_loads_s(settings.full.reload)
    return served_for_s(cache)


def served_for_s(cache: CacheSettings) -> float:
    """The maximal age of a row that is served; infinite if rows do not expire.

    Older rows may stay in the cache until their room is needed.
    """
    if cache.mode is CacheMode.FULL:
        return math.inf
    return cache.ttl_s + cache.stale_s


def _between_loads_s(reload: ReloadSettings) -> float | None:
    return reload.every_s if reload.at_s is None else _DAY_S
