"""The settings of a dimension as plain numbers, with the defaults that the documents promise."""

import dataclasses

import pytest

from lookup_core.settings import CacheMode, DimensionSettings, WhileLoading


def test_defaults_are_the_documented_ones() -> None:
    """A dimension that names nothing else reads through a bounded cache and batches naturally."""
    settings = dataclasses.asdict(DimensionSettings("customers"))

    assert settings == {
        "name": "customers",
        "cache": {
            "mode": CacheMode.PARTIAL,
            "max_bytes": 256 * 1024 * 1024,
            "ttl_s": 600.0,
            "negative_ttl_s": 5.0,
            "ttl_jitter": 0.0,
            "stale_while_revalidate_s": 0.0,
            "stale_if_error_s": 0.0,
        },
        "batch": {"max_keys": 500, "linger_s": 0.0, "max_in_flight": 8},
        "retry": {
            "max_retries": 2,
            "initial_s": 0.05,
            "max_s": 1.0,
            "multiplier": 2.0,
            "on_missing": {"max_retries": 0, "delay_s": 1.0},
        },
        "full": {
            "while_loading": WhileLoading.WAIT,
            "warmup_max_wait_s": 600.0,
            "reload": {"every_s": None, "at_s": None},
        },
        "feed": {"max_silence_s": 10.0, "max_staleness_s": None, "max_drift_s": None},
        "default": None,
        "timeout_s": 2.0,
        "wait_for_dimension_s": 0.0,
        "max_waiting_keys": 200_000,
    }


def test_settings_do_not_change() -> None:
    """What the parts of a dimension were built with stays what it was."""
    settings = DimensionSettings("customers")

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.timeout_s = 3.0  # type: ignore[misc]  # the point of the test
