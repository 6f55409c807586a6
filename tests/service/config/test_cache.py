"""What of a dimension is kept."""

import pytest

from lookup_core.settings import (
    CacheMode,
    CacheSettings,
    FullSettings,
    ReloadSettings,
    WhileLoading,
)
from service.config.cache import Cache
from tests.service.config.configuration import dimension_faults


def test_defaults_are_the_engines_defaults() -> None:
    """The file and the engine agree on what nobody sets, but for the jitter of times to live."""
    assert Cache().engine_settings() == CacheSettings(ttl_jitter=0.1)


def test_engine_gets_seconds_and_bytes() -> None:
    """Units end at the configuration."""
    cache = Cache.model_validate(
        {
            "mode": "none",
            "max_bytes": "1KiB",
            "ttl": "1m",
            "negative_ttl": "0s",
            "ttl_jitter": 0.25,
            "stale_while_revalidate": "30s",
            "stale_if_error": "1h",
        }
    )

    assert cache.engine_settings() == CacheSettings(
        mode=CacheMode.NONE,
        max_bytes=1024,
        ttl_s=60.0,
        negative_ttl_s=0.0,
        ttl_jitter=0.25,
        stale_while_revalidate_s=30.0,
        stale_if_error_s=3600.0,
    )


@pytest.mark.parametrize("jitter", [0, 0.5])
def test_jitter_may_be_up_to_half(jitter: float) -> None:
    """Both ends of the range are taken."""
    cache = Cache.model_validate({"ttl_jitter": jitter})

    assert cache.engine_settings().ttl_jitter == jitter


@pytest.mark.parametrize("jitter", [-0.1, 0.51, "a tenth"])
def test_other_jitter_is_refused(jitter: object) -> None:
    """A share outside the range, or none at all, stops the start."""
    [fault] = dimension_faults(cache={"ttl_jitter": jitter})

    assert fault.startswith("cache.ttl_jitter: ")


@pytest.mark.parametrize("name", ["stale_while_revalidate", "stale_if_error"])
def test_stale_windows_need_a_unit(name: str) -> None:
    """A bare number says no unit, so that it is refused."""
    [fault] = dimension_faults(cache={name: 5})

    assert fault.startswith(f"cache.{name}: 5 is not a duration")


def test_loading_is_of_mode_full() -> None:
    """What is said of loading has no effect in the other modes, unless it is the default."""
    loading = {"while_loading": "fetch", "warmup_max_wait": "1m"}
    full = Cache.model_validate({"mode": "full", **loading}).full_settings(ReloadSettings())

    assert full == FullSettings(WhileLoading.FETCH, 60.0)
    assert dimension_faults(cache=loading) == [
        "cache: while_loading and warmup_max_wait have no effect but in mode full"
    ]


def test_nothing_expires_in_mode_full() -> None:
    """Times to live would be wishes without effect; those that stand in for a failure are not."""
    assert dimension_faults(cache={"mode": "full", "ttl": "1s", "ttl_jitter": 0}) == [
        "cache: ttl, ttl_jitter: no effect in mode full, where nothing expires"
    ]
    assert Cache.model_validate({"mode": "full", "stale_if_error": "1h"}).stale_if_error_s == 3600


def test_other_modes_are_unknown() -> None:
    """A word that is no mode is refused with those that are."""
    assert dimension_faults(cache={"mode": "fast"}) == [
        "cache.mode: must be 'partial', 'full' or 'none'"
    ]
