"""Requests for lookups and invalidations, in paths, JSON bodies and query strings.

Keys and columns are checked later, against the schema of the dimension.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lookup_core.errors import ErrorCode, InvalidRequest, named_dimension
from service.engine.dimension import Dimension

MAX_FAULTS = 5
_MAX_PATH = 100  # characters
_MAX_DIGITS = 20  # more than any timeout has, and few enough for Python's int
_Model = TypeVar("_Model", bound=BaseModel)


class LookupRequestBody(BaseModel):
    """The body of `POST …/lookup`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title="LookupRequest")

    keys: list[Any] = Field(description="One value per key; a list of values per composite key.")
    columns: list[str] | None = Field(
        default=None, description="The wanted columns; by default all columns of the dimension."
    )
    timeout_ms: Annotated[int, Field(gt=0, le=3_600_000)] | None = Field(
        default=None, description="Timeout of the whole lookup; by default that of the dimension."
    )

    @property
    def timeout_s(self) -> float | None:
        """The timeout in seconds; None if the request has none."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000


class InvalidateRequestBody(BaseModel):
    """The body of `POST …/invalidate`: some keys, or all of them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title="InvalidateRequest")

    keys: list[Any] | None = Field(default=None, description="The keys to drop, as in a lookup.")
    all: bool | None = Field(default=None, description="True to drop all keys.")

    @model_validator(mode="after")
    def _names_either(self) -> Self:
        if (self.keys is None) == (self.all is not True):
            raise ValueError("either keys or all: true is required")
        return self


def path_dimension(request: web.Request, dimensions: Mapping[str, Dimension]) -> Dimension:
    """The dimension that the path names; raises InvalidRequest (`unknown_dimension`)."""
    return named_dimension(dimensions, request.match_info["name"])


def from_json(model: type[_Model], value: object) -> _Model:
    """The request in a parsed JSON body; raises InvalidRequest with the path of each fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(ErrorCode.BAD_REQUEST, _faults(error)) from error


def from_query(query: Mapping[str, str]) -> LookupRequestBody:
    """`columns`, separated by commas, and `timeout_ms` of a query string."""
    unknown = [name for name in query if name not in {"columns", "timeout_ms"}]
    columns = query.get("columns")
    timeout_ms = query.get("timeout_ms", "")
    is_number = timeout_ms.isdecimal() and len(timeout_ms) <= _MAX_DIGITS
    return from_json(
        LookupRequestBody,
        {
            "keys": [],
            "columns": columns if columns is None else [n for n in columns.split(",") if n],
            "timeout_ms": int(timeout_ms) if is_number else query.get("timeout_ms"),
            **dict.fromkeys(unknown),
        },
    )


def refuse_query(query_string: str) -> None:
    """Raise InvalidRequest for a query string, which would have no effect with a JSON body."""
    if query_string:
        raise InvalidRequest(
            ErrorCode.BAD_REQUEST, "columns and timeout_ms belong in the body, next to the keys"
        )


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    texts = [
        f"{_path(fault['loc'])}: {fault['msg'].removeprefix('Value error, ')}"
        for fault in faults[:MAX_FAULTS]
    ]
    more = len(faults) - len(texts)
    return "; ".join([*texts, f"and {more} more"] if more else texts)


def _path(location: tuple[int | str, ...]) -> str:
    path = ".".join(str(part) for part in location)
    return path[:_MAX_PATH] or "body"
