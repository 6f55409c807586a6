"""The dimensions that requests can name.

Does not know what routes do with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from lookup_core.unknown_dimension import unknown_dimension
from service.engine.dimension import Dimension


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Dimensions by their configured names."""

    dimensions: Mapping[str, Dimension]

    def named(self, request: web.Request) -> Dimension:
        """The dimension in the path; raises InvalidRequest (`unknown_dimension`) naming all."""
        name = request.match_info["name"]
        dimension = self.dimensions.get(name)
        if dimension is None:
            raise unknown_dimension(name, self.dimensions)
        return dimension
