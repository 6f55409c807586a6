"""A dimension whose cache fits into the memory that all dimensions share.

Several that fit one by one may be too much together: then all get less, see `service.resources`.
"""

from typing import Annotated

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from service.config.dimension import DimensionConfig
from service.config.fault_lines import BELOW
from service.config.quantity import size_text


def fitting_dimension(dimension: DimensionConfig, info: ValidationInfo) -> DimensionConfig:
    """The same dimension; raises PydanticCustomError if its cache does not fit."""
    limits, cache = info.data.get("limits"), dimension.cache
    is_written = "max_bytes" in cache.model_fields_set
    if limits is None or not is_written or cache.max_bytes <= limits.memory_bytes:
        return dimension
    sizes = (cache.max_bytes, limits.memory_bytes, 2 * cache.max_bytes)
    wanted, memory, enough = map(size_text, sizes)
    raise PydanticCustomError(
        "too_large",
        "{wanted} is more than limits.memory ({memory}), of which all caches get half; "
        "raise that to {enough}, or lower this",
        {"wanted": wanted, "memory": memory, "enough": enough, BELOW: ("cache", "max_bytes")},
    )


FittingDimension = Annotated[DimensionConfig, AfterValidator(fitting_dimension)]
