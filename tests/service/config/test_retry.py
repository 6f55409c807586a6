"""Trying again, and waiting before it."""

from typing import Any

import pytest

from lookup_core.dimension.retries import NEVER, RetryPolicy
from lookup_core.errors import ErrorCode
from lookup_core.settings import OnMissingSettings, RetrySettings
from service.config.dimension import Retry
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


def test_missing_rows_can_be_asked_for_again() -> None:
    """How often and after how long is said apart from what holds for errors."""
    retry = Retry.model_validate({"on_missing": {"max_retries": 3, "delay": "250ms"}})

    assert retry.engine_settings() == RetrySettings(on_missing=OnMissingSettings(3, 0.25))


def test_retries_are_bounded() -> None:
    """Neither without end, nor without a pause, which would be a load and no retry."""
    count = "is not a whole number from 0 to 100"
    span = "is not a duration from 1ms to 1h, written as a number and a unit (ms, s, m, h, d)"

    assert dimension_faults(
        retry={"max_retries": 101, "on_missing": {"max_retries": -1, "delay": "0s"}}
    ) == [
        f"retry.max_retries: 101 {count}",
        f"retry.on_missing.max_retries: -1 {count}",
        f"retry.on_missing.delay: '0s' {span}",
    ]


@pytest.mark.parametrize(
    ("written", "delays_s"),
    [
        ({"max_retries": 0}, [NEVER]),
        ({"backoff": {"multiplier": 1}}, [0.05, 0.05, NEVER]),
        ({"max_retries": 3, "backoff": {"multiplier": 1.5}}, [0.05, 0.075, 0.112, NEVER]),
    ],
    ids=["none", "fixed", "exponential"],
)
def test_each_strategy_can_be_written(written: dict[str, Any], delays_s: list[float]) -> None:
    """No retries, retries at a fixed delay, and at one that grows."""
    policy = RetryPolicy(Retry.model_validate(written).engine_settings())
    code = ErrorCode.BACKEND_UNAVAILABLE
    numbers = range(1, len(delays_s) + 1)

    assert [policy.after_failure(n, code=code, now=0.0, jitter=1.0) for n in numbers] == delays_s
