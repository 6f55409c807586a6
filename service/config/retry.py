"""How often, and after which waiting, the backend is asked again: after errors, and for rows.

Not for the connection between Spark and the sidecar, which the client takes up again by itself.
"""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from lookup_core.settings import OnMissingSettings, RetrySettings
from service.config.number import count, factor
from service.config.quantity import duration
from service.config.section import Section, written


class Backoff(Section):
    """Waiting between two tries: `initial`, then `multiplier` times as long, up to `max`."""

    initial_s: Annotated[float, duration("1ms", "1h")] = written("50ms", alias="initial")
    max_s: Annotated[float, duration("1ms", "1h")] = written("1s", alias="max")
    multiplier: Annotated[float, factor(1, 100)] = 2.0

    @field_validator("max_s", mode="after")
    @classmethod
    def _is_not_below_initial(cls, max_s: float, info: ValidationInfo) -> float:
        if max_s < info.data.get("initial_s", 0.0):
            raise ValueError("less than backoff.initial; raise it, or lower backoff.initial")
        return max_s


class OnMissing(Section):
    """Tries after a row was not found, for rows that arrive later than their records."""

    max_retries: Annotated[int, count(0, 100)] = 0
    delay_s: Annotated[float, duration("1ms", "1h")] = written("1s", alias="delay")


class Retry(Section):
    """Tries after the first one, within the timeout of the lookup.

    No retries: `max_retries: 0`. A fixed delay: `multiplier: 1`. Else it grows, exponentially.
    """

    max_retries: Annotated[int, count(0, 100)] = 2
    backoff: Backoff = Field(default_factory=Backoff)
    on_missing: OnMissing = Field(
        default_factory=OnMissing, examples=[{"max_retries": 3, "delay": "500ms"}]
    )

    def engine_settings(self) -> RetrySettings:
        """The same for the engine."""
        return RetrySettings(
            max_retries=self.max_retries,
            initial_s=self.backoff.initial_s,
            max_s=self.backoff.max_s,
            multiplier=self.backoff.multiplier,
            on_missing=OnMissingSettings(
                max_retries=self.on_missing.max_retries, delay_s=self.on_missing.delay_s
            ),
        )
