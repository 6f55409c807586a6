"""Freshness by LISTEN and NOTIFY: the channel that the table's triggers tell of changes on.

The triggers themselves are printed by `gen-triggers`, and made by who owns the table.
"""

from typing import Annotated

from pydantic import Field

from service.config.quantity import duration
from service.config.section import Section, written

MOST_CHANNEL_BYTES = 63  # PostgreSQL cuts longer names


class Notifications(Section):
    """What `refresh.listen` holds."""

    channel: str | None = Field(
        default=None,
        pattern=rf"^[A-Za-z0-9_.-]{{1,{MOST_CHANNEL_BYTES}}}$",
        description="name of the channel; sidelook_ and the dimension's name, if it is not given",
    )
    max_staleness_s: Annotated[float, duration("6s", "1h")] = written(
        "15s",
        alias="max_staleness",
        description="after so long without a sign of life, nothing is served from the cache",
    )

    def channel_of(self, dimension: str) -> str:
        """The channel of a dimension with this name."""
        return self.channel or f"sidelook_{dimension}"[:MOST_CHANNEL_BYTES]
