"""What a configuration says that is allowed, and hardly meant.

Faults that stop the start are found when it is loaded; what its stores are like is seen elsewhere.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

from lookup_core.settings import CacheMode
from service.config.dimension import DimensionConfig
from service.config.quantity import duration_text, size_text
from service.config.secrets import holds_password
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.doctor.finding import Finding, Subject
from service.resources.memory_shares import MemoryShares

CHECK = "configuration"


@dataclass(frozen=True, slots=True)
class ConfigurationCheck:
    """A configuration from a file; or its faults, where it cannot be loaded."""

    file: str
    settings: Settings | None
    faults: Sequence[str] = ()

    @property
    def matter(self) -> Subject:
        """The file."""
        return Subject(CHECK, self.file)

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Every fault, or every oddity."""
        for fault in self.faults:
            yield self.matter.error(fault, "do as it says; `check-config FILE` tells the same")
        if self.settings is not None:
            oddities = list(configuration_findings(self.settings))
            for finding in oddities or [self.matter.ok("holds no fault and no oddity")]:
                yield finding


def configuration_findings(settings: Settings) -> Iterator[Finding]:
    """What is odd in it."""
    yield from _cache_findings(settings)
    if settings.listen.health is None:
        yield Subject(CHECK, "listen.health").warning(
            "no probe and no Prometheus reaches the sidecar: the health listener is closed",
            "leave listen.health out, or give 0.0.0.0:8816",
        )
    for name, config in settings.dimensions.items():
        yield from dimension_findings(Subject(CHECK, f"dimensions.{name}"), config)


def _cache_findings(settings: Settings) -> Iterator[Finding]:
    caches = {
        name: each.cache
        for name, each in settings.dimensions.items()
        if each.cache.mode is not CacheMode.NONE
    }
    wanted_bytes = sum(each.max_bytes for each in caches.values())
    is_written = any("max_bytes" in each.model_fields_set for each in caches.values())
    scale = MemoryShares(settings.limits.memory_bytes).cache_scale(wanted_bytes)
    if scale < 1.0 and is_written:
        yield Subject(CHECK, "limits.memory").warning(
            f"the caches' max_bytes are {size_text(wanted_bytes)} together, and get half of "
            f"{size_text(settings.limits.memory_bytes)}: each {scale:.0%} of what it asks for",
            f"raise limits.memory to {size_text(2 * wanted_bytes)}, or lower cache.max_bytes",
        )


def dimension_findings(matter: Subject, config: DimensionConfig) -> Iterator[Finding]:
    """What is odd in one dimension."""
    cache = config.cache
    if cache.mode is CacheMode.PARTIAL and cache.ttl_s < config.timeout_s:
        yield matter.warning(
            f"cache.ttl ({duration_text(cache.ttl_s)}) is shorter than timeout "
            f"({duration_text(config.timeout_s)}): rows expire while others still wait for them",
            "raise cache.ttl, or set cache.mode to none",
        )
    if cache.mode is CacheMode.PARTIAL and cache.negative_ttl_s > cache.ttl_s:
        yield matter.warning(
            "an absence is believed for longer than a row: cache.negative_ttl "
            f"({duration_text(cache.negative_ttl_s)}) is longer than ttl",
            "lower cache.negative_ttl",
        )
    if _is_loaded_once(config):
        yield matter.warning(
            "the table is loaded once, and its rows grow old: nothing tells of changes",
            "give refresh.changelog, refresh.listen or refresh.reload",
        )
    if isinstance(config.source, PostgresSource) and _holds_password(config.source):
        yield matter.warning(
            "the password of its database stands in the configuration itself",
            "put the address into a file of mode 0400, and name that with source.dsn_file",
        )


def _is_loaded_once(config: DimensionConfig) -> bool:
    is_refreshed = config.refresh.feed is not None or config.refresh.reload is not None
    is_of_postgres = isinstance(config.source, PostgresSource)
    return config.cache.mode is CacheMode.FULL and is_of_postgres and not is_refreshed


def _holds_password(source: PostgresSource) -> bool:
    return source.dsn is not None and holds_password(source.dsn.get_secret_value())
