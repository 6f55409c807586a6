"""The columns that say from when to when a row of a key is valid, for lookups as of a time.

Which version a record gets is picked by the client.
"""

from pydantic import Field, ValidationInfo, field_validator

from lookup_core.version_columns import VersionColumns
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

    @field_validator("valid_to", mode="after")
    @classmethod
    def _is_another_column(cls, valid_to: str | None, info: ValidationInfo) -> str | None:
        if valid_to is not None and valid_to == info.data.get("valid_from"):
            raise ValueError("is valid_from, too: no version would ever be valid; leave it out")
        return valid_to

    def engine_settings(self) -> VersionColumns:
        """The same for the engine."""
        return VersionColumns(self.valid_from, self.valid_to)
