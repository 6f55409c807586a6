"""The columns that say from when to when a row of a key is valid, for lookups as of a time.

Which version a record gets is picked by the client.
"""

from pydantic import Field

from service.config.section import Section


class Versions(Section):
    """What `versions` holds; a version is valid from the one time on and before the other."""

    valid_from: str = Field(min_length=1, max_length=255, description="column; null: from ever")
    valid_to: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        description="column; null in it: for ever; left out: up to the key's next version",
    )
