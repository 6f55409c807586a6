"""When a dimension that is held whole is loaded anew: every so often, or at a time of day.

A reload on demand needs nothing here.
"""

import re
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from lookup_core.settings import ReloadSettings
from service.config.quantity import duration
from service.config.section import Section

_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


class Reload(Section):
    """What `refresh.reload` holds: one of both."""

    every_s: Annotated[float, duration("1s", "365d")] | None = Field(
        default=None, alias="every", description="pause between the end of a load and the next"
    )
    at: str | None = Field(default=None, description="time of day in UTC, such as '03:30'")

    @field_validator("at", mode="after")
    @classmethod
    def _is_time_of_day(cls, at: str | None, info: ValidationInfo) -> str | None:
        if (info.data.get("every_s", 0.0) is None) == (at is None):
            raise ValueError("give exactly one of reload.every and reload.at")
        if at is not None and _TIME_OF_DAY.fullmatch(at) is None:
            raise ValueError("must be a time of day in UTC, such as '03:30'; write it in quotes")
        return at

    def engine_settings(self) -> ReloadSettings:
        """The same for the engine."""
        if self.at is None:
            return ReloadSettings(every_s=self.every_s)
        hours, minutes = map(int, self.at.split(":"))
        return ReloadSettings(at_s=60.0 * (60 * hours + minutes))
