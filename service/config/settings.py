"""The whole configuration, after it was read and checked.

Reads neither file nor environment itself; see `loading`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, SettingsConfigDict

from service.config.auth import Auth
from service.config.dimension import DimensionConfig
from service.config.dimension_name import DimensionName
from service.config.limits import Limits
from service.config.listen import Listen


class Settings(BaseSettings):
    """Everything that `serve` needs to know; frozen."""

    model_config = SettingsConfigDict(
        title="Sidelook's configuration",
        extra="forbid",
        frozen=True,
        validate_default=True,
        hide_input_in_errors=True,
        case_sensitive=True,
    )

    listen: Listen = Field(default_factory=Listen)
    auth: Auth = Field(default_factory=Auth)
    limits: Limits = Field(default_factory=Limits)
    allow_inline_secrets: bool = Field(
        default=False, strict=True, description="lets a dsn in the file hold a password"
    )
    dimensions: dict[DimensionName, DimensionConfig] = Field(min_length=1)

    def __init__(self, *layers: Mapping[str, Any]) -> None:
        """Merge the layers, of which the first one wins, key by key, and check the outcome.

        Raises pydantic's ValidationError. Looks at nothing but the layers.
        """
        sources = tuple(InitSettingsSource(type(self), dict(layer)) for layer in layers)
        super().__init__(_build_sources=(sources, {}))

    @field_validator("dimensions", mode="after")
    @classmethod
    def _fit_into_memory(
        cls, dimensions: dict[str, DimensionConfig], info: ValidationInfo
    ) -> dict[str, DimensionConfig]:
        limits = info.data.get("limits")
        too_large = [
            name
            for name, dimension in dimensions.items()
            if limits is not None
            and "max_bytes" in dimension.cache.model_fields_set
            and dimension.cache.max_bytes > limits.memory_bytes
        ]
        if too_large:
            names = ", ".join(f"{name}.cache.max_bytes" for name in too_large)
            raise ValueError(f"{names} is more than limits.memory; lower it, or raise that")
        return dimensions
