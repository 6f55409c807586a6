"""Configuration check: faults, doubtful settings, and the limits of this process's control group.

The limits are the sidecar's only if the doctor runs in the sidecar's container.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lookup_core.settings import CacheMode
from service.config.dimension import DimensionConfig
from service.config.postgres_address import holds_password
from service.config.quantity import duration_text, size_text
from service.config.settings import Settings
from service.config.source import PostgresSource
from service.doctor.finding import Finding, Subject
from service.resources.memory_reading import ControlGroup, ProcessMemory
from service.wiring.cache_demand import CacheDemand

LIMITS_MEMORY_FACTOR = 1.5  # the rest is for the interpreter and its libraries
_MEBIBYTE = 2**20
CHECK = "configuration"


def check_process_limits(
    subject: Subject, memory_bytes: int | None, root: Path = Path("/")
) -> Iterator[Finding]:
    """Yield a finding for each limit.

    `memory_bytes` is limits.memory, None without a configuration; `root` contains /proc and /sys.
    """
    if memory_bytes is not None:
        yield memory_finding(subject, memory_bytes, ProcessMemory(root).read().group_limit_bytes)
    yield processors_finding(subject, ControlGroup.of("cpu", root).processors)


def memory_finding(subject: Subject, wanted_bytes: int, limit_bytes: int | None) -> Finding:
    """Return whether `limits.memory` fits into the memory limit of the container."""
    least_bytes = -int(-LIMITS_MEMORY_FACTOR * wanted_bytes // _MEBIBYTE) * _MEBIBYTE
    wanted = f"limits.memory is {size_text(wanted_bytes)}"
    if limit_bytes is None:
        return subject.ok(f"{wanted}, and memory has no limit")
    # In whole mebibytes: the kernel rounds limits to pages.
    limit = f"{wanted}, and the container has {size_text(limit_bytes // _MEBIBYTE * _MEBIBYTE)}"
    remedy = f"give the container at least {size_text(least_bytes)}, or lower limits.memory"
    if limit_bytes < wanted_bytes:
        return subject.error(f"{limit}: the kernel will kill the sidecar", remedy)
    if limit_bytes < least_bytes:
        return subject.warning(f"{limit}: too little with the interpreter", remedy)
    return subject.ok(limit)


def processors_finding(subject: Subject, processors: float | None) -> Finding:
    """Return whether the container has a whole processor."""
    if processors is None:
        return subject.ok("processors have no limit")
    if processors >= 1.0:
        return subject.ok("has at least one processor")
    return subject.warning(
        f"is limited to {processors:g} processors: throttling stops the event loop for all tasks "
        "of the executor",
        "give the container a CPU request without a limit, or at least one processor",
    )


def check_configuration(
    subject: Subject, settings: Settings | None, faults: Sequence[str] = ()
) -> Iterator[Finding]:
    """Yield every fault of a configuration that cannot be loaded, or every doubtful setting."""
    for fault in faults:
        yield subject.error(fault, "correct the setting; `check-config FILE` lists the same faults")
    if settings is not None:
        doubts = list(configuration_findings(settings))
        yield from doubts or [subject.ok("has no fault and no doubtful setting")]


def configuration_findings(settings: Settings) -> Iterator[Finding]:
    """Yield the doubtful settings."""
    caches = CacheDemand.of(settings)
    if caches.scale < 1.0 and caches.written:
        # Never 0 % or 100 %: the caches shrink, and they keep something.
        percent = min(max(round(caches.scale * 100, 1), 0.1), 99.9)
        yield Subject(CHECK, "limits.memory").warning(
            f"the caches' max_bytes are {size_text(caches.wanted_bytes)} together, and caches get "
            f"half of {size_text(settings.limits.memory_bytes)}: each shrinks to {percent:g}%",
            f"raise limits.memory to {size_text(2 * caches.wanted_bytes)}, or lower "
            "cache.max_bytes",
        )
    if settings.listen.health is None:
        yield Subject(CHECK, "listen.health").warning(
            "the health listener is closed: probes and Prometheus cannot reach the sidecar",
            "remove listen.health, or set it to 0.0.0.0:8816",
        )
    for name, config in settings.dimensions.items():
        yield from _dimension_findings(Subject(CHECK, f"dimensions.{name}"), config)


def _dimension_findings(subject: Subject, config: DimensionConfig) -> Iterator[Finding]:
    cache, source = config.cache, config.source
    is_postgres = isinstance(source, PostgresSource)
    if cache.mode is CacheMode.PARTIAL and cache.ttl_s < config.timeout_s:
        yield subject.warning(
            f"cache.ttl ({duration_text(cache.ttl_s)}) is shorter than timeout "
            f"({duration_text(config.timeout_s)}): rows may expire before waiting lookups get them",
            "raise cache.ttl, or set cache.mode to none",
        )
    if cache.mode is CacheMode.PARTIAL and cache.negative_ttl_s > cache.ttl_s:
        yield subject.warning(
            f"cache.negative_ttl ({duration_text(cache.negative_ttl_s)}) is longer than ttl: "
            "negative entries outlive rows",
            "lower cache.negative_ttl",
        )
    is_refreshed = config.refresh.feed is not None or config.refresh.reload is not None
    if cache.mode is CacheMode.FULL and is_postgres and not is_refreshed:
        yield subject.warning(
            "the table is loaded once and never refreshed",
            "set refresh.changelog, refresh.listen or refresh.reload",
        )
    dsn = source.dsn if isinstance(source, PostgresSource) else None
    if dsn is not None and holds_password(dsn.get_secret_value()):
        yield subject.warning(
            "the configuration contains the password of the database",
            "move the address to a file of mode 0400, and name the file in source.dsn_file",
        )
