"""What of a dimension is kept."""

import pytest

from lookup_core.settings import CacheMode, CacheSettings
from service.config.cache import Cache
from tests.service.config.configuration import dimension_faults


def test_defaults_are_the_engines_defaults() -> None:
    """The file and the engine agree on what nobody sets."""
    assert Cache().engine_settings() == CacheSettings()


def test_engine_gets_seconds_and_bytes() -> None:
    """Units end at the configuration."""
    cache = Cache.model_validate(
        {"mode": "none", "max_bytes": "1KiB", "ttl": "1m", "negative_ttl": "0s"}
    )

    assert cache.engine_settings() == CacheSettings(
        mode=CacheMode.NONE, max_bytes=1024, ttl_s=60.0, negative_ttl_s=0.0
    )


def test_full_mode_is_not_available() -> None:
    """A mode that this version does not carry out stops the start."""
    assert dimension_faults(cache={"mode": "full"}) == [
        "cache.mode: 'full' is not available in this version; use 'partial' or 'none'"
    ]


def test_other_modes_are_unknown() -> None:
    """A word that is no mode is refused with those that are."""
    assert dimension_faults(cache={"mode": "fast"}) == ["cache.mode: must be 'partial' or 'none'"]


@pytest.mark.parametrize("name", ["stale_while_revalidate", "stale_if_error"])
def test_stale_answers_are_not_available(name: str) -> None:
    """Stale answers would not be given, so they must not be asked for."""
    assert dimension_faults(cache={name: "1s"}) == [
        f"cache.{name}: not available in this version; leave it out, or set it to 0s"
    ]
