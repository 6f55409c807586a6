"""Base class of all configuration sections: frozen, rejects unknown keys, prints no values."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import getsource
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

Given: TypeAlias = Mapping[str, Any]  # {field: value} of valid fields before the checked one


def _describe(schema: dict[str, Any], section: type["Section"]) -> None:
    """Add the texts below the fields, from the source: only `schema` needs them."""
    (definition,) = ast.parse(getsource(section)).body
    assert isinstance(definition, ast.ClassDef)
    for field, text in pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(description))):
                key = section.model_fields[name].alias
                schema["properties"][key]["description"] = " ".join(description.split())


class Section(BaseModel):
    """A mapping of the YAML file; its keys are the names of the fields, without the unit `_s`.

    The text below a field is its description in the JSON Schema.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=lambda name: name.removesuffix("_s"),
        json_schema_extra=_describe,
        # Defaults are written as in the file ("10m"), so they are parsed and validated, too.
        validate_default=True,
        # A wrong value may be a misplaced secret: no error shows it.
        hide_input_in_errors=True,
    )


def written(default: str) -> Any:  # noqa: ANN401  # the field has the type of the parsed default
    """Return a field with a default written as in the file, such as `10m`."""
    return Field(default=default)


def rule(*names: str) -> Callable[[Callable[[Any, Any, Given], None]], Any]:
    """Decorate a check of valid fields, which raises ValueError and changes nothing."""

    def decorated(check: Callable[[Any, Any, Given], None]) -> object:
        def validate(cls: type[Section], value: object, info: ValidationInfo) -> object:
            check(cls, value, info.data)
            return value

        return field_validator(*names)(classmethod(validate))

    return decorated


def _anchored(path: Path, info: ValidationInfo) -> Path:
    folder: Path | None = (info.context or {}).get("folder")
    return path if folder is None else folder / path


FilePath = Annotated[Path, AfterValidator(_anchored)]  # relative to the configuration file

_Settings = TypeVar("_Settings")


def copied(kind: type[_Settings], section: Section | None, **others: object) -> _Settings:
    """Return settings of the engine, with the section's values in the fields of equal names.

    `others` are the values of further fields; without a section, the rest have their defaults.
    """
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    own = {name: getattr(section, name) for name in names if hasattr(section, name)}
    return kind(**own | others)
