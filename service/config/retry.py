"""How often, and after which waiting, a query that failed is tried again.

Errors only; a row that is missing is an answer, and asked again by no retry of this version.
"""

from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from lookup_core.settings import RetrySettings
from service.config.not_available import not_available
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

    max_retries: Annotated[int, count(0, 100), AfterValidator(not_available(0, written="0"))] = 0
    delay_s: Annotated[float, duration(), AfterValidator(not_available(1.0, written="1s"))] = (
        written("1s", alias="delay")
    )


class Retry(Section):
    """Tries after the first one, within the timeout of the lookup."""

    max_retries: Annotated[int, count(0, 100)] = 2
    backoff: Backoff = Field(default_factory=Backoff)
    on_missing: OnMissing = Field(default_factory=OnMissing)

    def engine_settings(self) -> RetrySettings:
        """The same for the engine."""
        return RetrySettings(
            max_retries=self.max_retries,
            initial_s=self.backoff.initial_s,
            max_s=self.backoff.max_s,
            multiplier=self.backoff.multiplier,
        )
