"""`cache`: mode, size and expiry of a dimension's cache."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from lookup_core.settings import CacheMode, CacheSettings, CacheShare, FullSettings, WhileLoading
from service.config.quantity import duration, factor, size
from service.config.section import Section, copied, written

_DEFAULTS = CacheSettings(ttl_jitter=0.1)
_OF_EXPIRY = ("ttl_s", "negative_ttl_s", "ttl_jitter", "stale_while_revalidate_s")


class Cache(Section):
    """Bounds of a dimension's cache; an entry expires when its age reaches its time to live.

    An expired row stays for the longer of both stale windows.
    """

    mode: CacheMode = Field(
        default=CacheMode.PARTIAL,
        description="partial: rows that were looked up; full: the whole table; none: no rows",
    )
    share: CacheShare = Field(
        default=CacheShare.AUTO,
        description="auto: workers on this machine read the cache themselves, through shared"
        " memory; off: all lookups go by the stream",
    )
    max_bytes: Annotated[int, size("1KiB", "1TiB")] = written("256MiB")
    ttl_s: Annotated[float, duration("1ms")] = written("10m", alias="ttl")
    negative_ttl_s: Annotated[float, duration()] = written("5s", alias="negative_ttl")
    ttl_jitter: Annotated[float, factor(0, 0.5)] = Field(
        default=_DEFAULTS.ttl_jitter,
        description="random share by which each time to live is shortened, at most this",
    )
    stale_while_revalidate_s: Annotated[float, duration()] = written(
        "0s", alias="stale_while_revalidate"
    )
    stale_if_error_s: Annotated[float, duration()] = written("0s", alias="stale_if_error")
    while_loading: WhileLoading = Field(
        default=WhileLoading.WAIT,
        description="mode full only: lookups wait for the first load, or query single rows",
    )
    warmup_max_wait_s: Annotated[float, duration("0s", "1d")] = written(
        "10m",
        alias="warmup_max_wait",
        description="mode full only: longest delay of /startupz by the first load",
    )
    load_spread_s: Annotated[float, duration("0s", "1h")] = written(
        "0s",
        alias="load_spread",
        description="mode full only: longest random delay of a load while no table is loaded, so"
        " that the sidecars of a fleet do not load together",
    )

    @model_validator(mode="after")
    def _loads_in_mode_full_only(self) -> Self:
        is_written = copied(FullSettings, self) != FullSettings()
        if is_written and self.mode is not CacheMode.FULL:
            raise ValueError("while_loading, warmup_max_wait and load_spread need mode full")
        if self.load_spread_s > 0 and self.load_spread_s >= self.warmup_max_wait_s:
            raise ValueError(
                "load_spread is not shorter than warmup_max_wait: the sidecar could be ready before"
                " its first load begins"
            )
        return self

    @model_validator(mode="after")
    def _expires_in_other_modes_only(self) -> Self:
        ineffective = [
            type(self).model_fields[name].alias or name
            for name in _OF_EXPIRY
            if getattr(self, name) != getattr(_DEFAULTS, name)
        ]
        if self.mode is CacheMode.FULL and ineffective:
            raise ValueError(f"no row expires in mode full; remove {', '.join(ineffective)}")
        return self
