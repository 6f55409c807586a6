"""What a lookup or an invalidation asks for, as it stands in JSON bodies and query strings.

Only its form: whether keys and columns fit the dimension is decided when they meet its schema.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lookup_core.errors import ErrorCode, InvalidRequest

MAX_TOLD_FAULTS = 5
_MAX_PATH = 100
_Model = TypeVar("_Model", bound=BaseModel)


class LookupRequest(BaseModel):
    """The body of `POST …/lookup`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keys: list[Any] = Field(description="One value per key; a list of values per composite key.")
    columns: list[str] | None = Field(
        default=None, description="The columns wanted; all that the dimension offers by default."
    )
    timeout_ms: Annotated[int, Field(gt=0, le=3_600_000)] | None = Field(
        default=None, description="For the whole lookup; the dimension's own timeout by default."
    )

    @property
    def timeout_s(self) -> float | None:
        """The timeout in seconds; none where the caller gave none."""
        return None if self.timeout_ms is None else self.timeout_ms / 1000


class InvalidateRequest(BaseModel):
    """The body of `POST …/invalidate`: some keys, or all of them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    keys: list[Any] | None = Field(default=None, description="The keys to forget, as in a lookup.")
    all: bool | None = Field(default=None, description="True to forget the whole dimension.")

    @model_validator(mode="after")
    def _names_either(self) -> Self:
        if (self.keys is None) == (self.all is not True):
            raise ValueError("either keys or all: true is needed")
        return self


def from_json(model: type[_Model], value: object) -> _Model:
    """The request in a parsed JSON body; raises InvalidRequest naming the path of each fault."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(ErrorCode.BAD_REQUEST, _faults(error)) from error


def from_query(query: Mapping[str, str]) -> LookupRequest:
    """What a query string says besides the keys: `columns` parted by commas, and `timeout_ms`."""
    unknown = [name for name in query if name not in {"columns", "timeout_ms"}]
    columns = query.get("columns")
    timeout_ms = query.get("timeout_ms")
    return from_json(
        LookupRequest,
        {
            "keys": [],
            "columns": columns if columns is None else [n for n in columns.split(",") if n],
            "timeout_ms": int(timeout_ms) if timeout_ms and timeout_ms.isdecimal() else timeout_ms,
            **dict.fromkeys(unknown),
        },
    )


def refuse_query(query_string: str) -> None:
    """Raise InvalidRequest for a query that would have no effect: the body says it all."""
    if query_string:
        raise InvalidRequest(
            ErrorCode.BAD_REQUEST, "columns and timeout_ms stand in the body, beside the keys"
        )


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{_path(fault['loc'])}: {fault['msg']}" for fault in faults[:MAX_TOLD_FAULTS]]
    more = len(faults) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)


def _path(location: tuple[int | str, ...]) -> str:
    path = ".".join(str(part) for part in location)
    return path[:_MAX_PATH] or "body"
