"""Freshness by LISTEN and NOTIFY: the channel that the table's triggers tell of changes on.

The triggers themselves are printed by `gen-triggers`, and made by who owns the table.
"""

from hashlib import sha256
from typing import Annotated

from pydantic import Field

from lookup_core.settings import FeedSettings
from service.config.quantity import duration
from service.config.section import Section, written

MOST_CHANNEL_BYTES = 63  # PostgreSQL refuses longer names
_DIGEST_CHARACTERS = 8


class Notifications(Section):
    """What `refresh.listen` holds."""

    channel: str | None = Field(
        default=None,
        pattern=rf"^[A-Za-z0-9_.-]{{1,{MOST_CHANNEL_BYTES}}}$",
        description="name of the channel; sidelook_ and the dimension's name, if it is not given",
    )
    max_staleness_s: Annotated[float, duration("6s", "1h")] = written(
        "10s",
        alias="max_staleness",
        description="after so long without a sign of life, nothing is served from the cache",
    )

    def feed_settings(self) -> FeedSettings:
        """What the engine asks of it; not by the server's clock, which may differ from ours."""
        return FeedSettings(max_silence_s=self.max_staleness_s)

    def channel_of(self, dimension: str) -> str:
        """The channel of a dimension with this name."""
        name = self.channel or f"sidelook_{dimension}"
        if len(name) <= MOST_CHANNEL_BYTES:
            return name
        digest = sha256(dimension.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        return f"{name[: MOST_CHANNEL_BYTES - len(digest) - 1]}_{digest}"
