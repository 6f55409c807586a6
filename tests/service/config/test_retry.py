"""Trying again, and waiting before it."""

from lookup_core.settings import RetrySettings
from service.config.retry import Retry
from tests.service.config.configuration import dimension_faults


def test_defaults_are_the_engines_defaults() -> None:
    """The file and the engine agree on what nobody sets."""
    assert Retry().engine_settings() == RetrySettings()


def test_engine_gets_seconds() -> None:
    """Units end at the configuration."""
    backoff = {"initial": "10ms", "max": "1m", "multiplier": 1.5}

    retry = Retry.model_validate({"max_retries": 0, "backoff": backoff})

    assert retry.engine_settings() == RetrySettings(
        max_retries=0, initial_s=0.01, max_s=60.0, multiplier=1.5
    )


def test_waiting_never_shrinks_at_once() -> None:
    """A longest waiting below the first one is a contradiction, be the first one the default."""
    assert dimension_faults(retry={"backoff": {"max": "40ms"}}) == [
        "retry.backoff.max: less than backoff.initial; raise it, or lower backoff.initial"
    ]


def test_retries_of_missing_rows_are_not_available() -> None:
    """A row that is missing is not asked for again, so nobody may rely on it."""
    refused = "not available in this version; leave it out, or set it to"

    assert dimension_faults(retry={"on_missing": {"max_retries": 1, "delay": "2s"}}) == [
        f"retry.on_missing.max_retries: {refused} 0",
        f"retry.on_missing.delay: {refused} 1s",
    ]
