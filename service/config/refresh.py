"""How a dimension hears of changes; words of later versions, which this one refuses.

Time to live is not among them: that one stands with the cache.
"""

from typing import Annotated

from pydantic import BeforeValidator, Field

from service.config.not_available import not_available
from service.config.section import Section

Unavailable = Annotated[None, BeforeValidator(not_available(None, written="null"))]


class Refresh(Section):
    """Where changes come from: notifications, a changelog, or loading anew."""

    listen: Unavailable = Field(default=None, description="not available in this version")
    changelog: Unavailable = Field(default=None, description="not available in this version")
    reload: Unavailable = Field(default=None, description="not available in this version")
