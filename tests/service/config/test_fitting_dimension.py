"""Caches and the memory that they share."""

from service.config.settings import Settings
from tests.service.config.configuration import AIRPORTS, MINIMAL, faults


def test_caches_fit_into_memory() -> None:
    """A cache that may be larger than all memory is a contradiction, told where it stands."""
    large, larger = ({"cache": {"max_bytes": size}} for size in ("1.5GiB", "2GiB"))
    caches = {"airports": large, "others": AIRPORTS | larger}

    remedy = "is more than limits.memory (1GiB), of which all caches get half; raise that to"
    assert faults({"dimensions": caches, "limits": {"memory": "1GiB"}}) == [
        f"dimensions.airports.cache.max_bytes: 1536MiB {remedy} 3GiB, or lower this",
        f"dimensions.others.cache.max_bytes: 2GiB {remedy} 4GiB, or lower this",
    ]


def test_default_cache_fits_any_memory() -> None:
    """Who lowers the memory does not have to lower what was never written."""
    settings = Settings({"limits": {"memory": "16MiB"}}, MINIMAL)

    assert settings.limits.memory_bytes == 16 * 2**20
