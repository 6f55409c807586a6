"""What of a dimension is kept, how much of it and for how long.

Only the wishes; the cache itself is the engine's.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from lookup_core.settings import (
    CacheMode,
    CacheSettings,
    FullSettings,
    ReloadSettings,
    WhileLoading,
)
from service.config.quantity import duration, size
from service.config.section import Section, written

_DEFAULTS = CacheSettings(ttl_jitter=0.1)
_OF_EXPIRY = ("ttl_s", "negative_ttl_s", "ttl_jitter", "stale_while_revalidate_s")


class Cache(Section):
    """Bounds of a dimension's cache; an entry expires at age >= its time to live.

    A row that has expired stays for the longer of both stale windows.
    """

    mode: CacheMode = Field(
        default=CacheMode.PARTIAL,
        description="partial: read through; full: the whole table; none: nothing is kept",
    )
    max_bytes: Annotated[int, size("1KiB", "1TiB")] = written("256MiB")
    ttl_s: Annotated[float, duration("1ms")] = written("10m", alias="ttl")
    negative_ttl_s: Annotated[float, duration()] = written("5s", alias="negative_ttl")
    ttl_jitter: float = Field(
        default=_DEFAULTS.ttl_jitter,
        ge=0.0,
        le=0.5,
        description="each key's times to live are shorter by up to this share of them",
    )
    stale_while_revalidate_s: Annotated[float, duration()] = written(
        "0s", alias="stale_while_revalidate"
    )
    stale_if_error_s: Annotated[float, duration()] = written("0s", alias="stale_if_error")
    while_loading: WhileLoading = Field(
        default=WhileLoading.WAIT,
        description="of mode full: whether lookups wait for the first load, or fetch each row",
    )
    warmup_max_wait_s: Annotated[float, duration("0s", "1d")] = written(
        "10m",
        alias="warmup_max_wait",
        description="of mode full: after so long the service counts as started, loaded or not",
    )

    @model_validator(mode="after")
    def _loads_in_mode_full_only(self) -> Self:
        is_written = self.full_settings(ReloadSettings()) != FullSettings()
        if is_written and self.mode is not CacheMode.FULL:
            raise ValueError("while_loading and warmup_max_wait have no effect but in mode full")
        return self

    @model_validator(mode="after")
    def _expires_in_other_modes_only(self) -> Self:
        written = self.engine_settings()
        vain = [
            type(self).model_fields[name].alias or name
            for name in _OF_EXPIRY
            if getattr(written, name) != getattr(_DEFAULTS, name)
        ]
        if self.mode is CacheMode.FULL and vain:
            raise ValueError(f"{', '.join(vain)}: no effect in mode full, where nothing expires")
        return self

    def engine_settings(self) -> CacheSettings:
        """The same for the engine."""
        return CacheSettings(
            mode=self.mode,
            max_bytes=self.max_bytes,
            ttl_s=self.ttl_s,
            negative_ttl_s=self.negative_ttl_s,
            ttl_jitter=self.ttl_jitter,
            stale_while_revalidate_s=self.stale_while_revalidate_s,
            stale_if_error_s=self.stale_if_error_s,
        )

    def full_settings(self, reload: ReloadSettings) -> FullSettings:
        """How the table is loaded, in mode full."""
        return FullSettings(self.while_loading, self.warmup_max_wait_s, reload)
