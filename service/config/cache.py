"""`cache`: mode, size and expiry of a dimension's cache."""

from typing import Annotated, Self

from pydantic import model_validator

from lookup_core.settings import (
    LEAST_CACHE_BYTES,
    CacheMode,
    CacheSettings,
    CacheShare,
    FullSettings,
    WhileLoading,
)
from service.config.quantity import duration, factor, size, size_text
from service.config.section import Section, copied, written

_DEFAULTS = CacheSettings(ttl_jitter=0.1)
_OF_EXPIRY = ("ttl_s", "negative_ttl_s", "ttl_jitter", "stale_while_revalidate_s")


class Cache(Section):
    """Mode, size and expiry of a dimension's cache."""

    mode: CacheMode = CacheMode.PARTIAL
    """`partial`: rows that were looked up. `full`: the whole table; a key without a row is missing
    without a query. `none`: each lookup is a query."""
    share: CacheShare = CacheShare.AUTO
    """`auto`: Python workers on this machine read the cache in shared memory, if the folder of
    `listen.unix` or `/dev/shm` is a tmpfs. `off`: all lookups use the socket."""
    max_bytes: Annotated[int, size(size_text(LEAST_CACHE_BYTES), "1TiB")] = written("256MiB")
    """Maximum size of the cache. If the caches of all dimensions exceed half of `limits.memory`,
    all shrink proportionally. A smaller cache than 16 KiB has no room for rows."""
    ttl_s: Annotated[float, duration("1ms")] = written("10m")
    """Time to live of a row. Then the row expires, and the next lookup is a query."""
    negative_ttl_s: Annotated[float, duration()] = written("5s")
    """Time to live of a missing key. `0s`: missing keys are not cached."""
    ttl_jitter: Annotated[float, factor(0, 0.5)] = _DEFAULTS.ttl_jitter
    """Maximum share by which each time to live is shortened at random, so that rows of one query do
    not expire together."""
    stale_while_revalidate_s: Annotated[float, duration()] = written("0s")
    """Time after `ttl` in which a lookup returns the expired row, while a query refreshes it."""
    stale_if_error_s: Annotated[float, duration()] = written("0s")
    """Time after `ttl` in which a lookup returns the expired row if the query fails."""
    while_loading: WhileLoading = WhileLoading.WAIT
    """Lookups before the first load, in mode `full`: `wait` for the load within their timeout, or
    `fetch` single rows by queries."""
    warmup_max_wait_s: Annotated[float, duration("0s", "1d")] = written("10m")
    """Maximum time that the first load delays `/startupz`, in mode `full`."""
    load_spread_s: Annotated[float, duration("0s", "1h")] = written("0s")
    """Maximum random delay of a load while the table is not in memory, in mode `full`: the first
    load, or one after lost changes. The sidecars of a fleet then do not load at the same time.
    Shorter than `warmup_max_wait`."""

    @property
    def wanted_bytes(self) -> int:
        """Its part of the memory that all caches share; 0 in mode `none`, whatever `max_bytes`."""
        return 0 if self.mode is CacheMode.NONE else self.max_bytes

    @model_validator(mode="after")
    def _fits_its_mode(self) -> Self:
        is_written = copied(FullSettings, self) != FullSettings()
        if is_written and self.mode is not CacheMode.FULL:
            raise ValueError("while_loading, warmup_max_wait and load_spread need mode full")
        if self.load_spread_s > 0 and self.load_spread_s >= self.warmup_max_wait_s:
            raise ValueError(
                "load_spread is not shorter than warmup_max_wait: the sidecar could be ready before"
                " its first load begins"
            )
        ineffective = [
            type(self).model_fields[name].alias or name
            for name in _OF_EXPIRY
            if getattr(self, name) != getattr(_DEFAULTS, name)
        ]
        if self.mode is CacheMode.FULL and ineffective:
            raise ValueError(f"no row expires in mode full; remove {', '.join(ineffective)}")
        return self
