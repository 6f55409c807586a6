"""The whole configuration, after it was read and checked.

Reads neither file nor environment itself; see `loading`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, InitSettingsSource, SettingsConfigDict

from service.config.auth import Auth
from service.config.dimension_name import DimensionName
from service.config.exposed_listener import missing_protection
from service.config.fault_lines import BELOW
from service.config.fitting_dimension import FittingDimension
from service.config.limits import Limits
from service.config.listen import Listen
from service.config.shared_channels import shared_channel
from service.config.tracing import Tracing


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

    auth: Auth = Field(default_factory=Auth)  # first, as what listens may need it
    listen: Listen = Field(default_factory=Listen)
    limits: Limits = Field(default_factory=Limits, examples=[{"memory": "512MiB"}])
    tracing: Tracing = Field(default_factory=Tracing)
    allow_inline_secrets: bool = Field(
        default=False, strict=True, description="lets a dsn in the file hold a password"
    )
    dimensions: dict[DimensionName, FittingDimension] = Field(min_length=1)

    @field_validator("listen", mode="after")
    @classmethod
    def _is_protected(cls, listen: Listen, info: ValidationInfo) -> Listen:
        auth = info.data.get("auth")
        missing = None if auth is None else missing_protection(listen, auth)
        if missing is None:
            return listen
        raise PydanticCustomError(
            "exposed_listener",
            "{http} can be reached from other machines, which needs {missing}; "
            "or listen on 127.0.0.1",
            {"http": str(listen.http), "missing": missing, BELOW: ("http",)},
        )

    @field_validator("dimensions", mode="after")
    @classmethod
    def _tell_their_own_keys(
        cls, dimensions: dict[str, FittingDimension]
    ) -> dict[str, FittingDimension]:
        shared = shared_channel(dimensions)
        if shared is None:
            return dimensions
        name, owner = shared
        raise PydanticCustomError(
            "shared_channel",
            "the channel of dimension {owner}, which has another table or key; give another one",
            {"owner": owner, BELOW: (name, "refresh", "listen", "channel")},
        )

    def __init__(self, *layers: Mapping[str, Any]) -> None:
        """Merge the layers, of which the first one wins, key by key, and check the outcome.

        Raises pydantic's ValidationError. Looks at nothing but the layers.
        """
        sources = tuple(InitSettingsSource(type(self), dict(layer)) for layer in layers)
        super().__init__(_build_sources=(sources, {}))
