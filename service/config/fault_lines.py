"""What pydantic found wrong, as lines for people: where, what, and what would be right.

Never shows a value, unless the check that refused it did: it may be a secret.
"""

import difflib
from collections.abc import Iterator, Mapping
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

TEXTS = {  # {pydantic's type of error: our words}
    "missing": "missing, and required",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "string_type": "must be text; write it in quotes",
    "path_type": "must be a path",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "invalid_key": "is a key that is no text; write it in quotes",
}


BELOW = "below"  # in an error's context: the steps from where it was found to what is wrong


def fault_lines(
    error: ValidationError, settings: type[BaseModel], *, origins: Mapping[tuple[str, ...], str]
) -> Iterator[str]:
    """One line for each fault; `origins` tells which variable set the value at a path."""
    for details in error.errors(include_url=False, include_input=False):
        is_unknown = details["type"] == "extra_forbidden"
        location = (*details["loc"], *details.get("ctx", {}).get(BELOW, ()))
        path, names = _located(location, settings, is_unknown=is_unknown)
        variables = [
            name
            for variable, name in origins.items()
            if path[: len(variable)] == variable or (is_unknown and variable[: len(path)] == path)
        ]
        origin = f" (set by {', '.join(variables)})" if variables else ""
        yield f"{'.'.join(path)}: {_text(details, names)}{origin}"


def _text(details: ErrorDetails, names: list[str]) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            return _unknown_key(str(details["loc"][-1]), names)
        case "union_tag_not_found":
            return "kind is missing; give 'postgres' or 'parquet'"
        case "union_tag_invalid":
            return f"kind must be one of {context['expected_tags']}"
        case "enum":
            return f"must be {context['expected']}"
        case kind:
            return TEXTS.get(kind, details["msg"])


def _unknown_key(key: str, names: list[str]) -> str:
    nearest = difflib.get_close_matches(key, names, n=1)
    if nearest:
        return f"unknown key; did you mean '{nearest[0]}'?"
    return f"unknown key; known here are {', '.join(names)}"


def _located(
    location: tuple[int | str, ...], settings: type[BaseModel], *, is_unknown: bool
) -> tuple[tuple[str, ...], list[str]]:
    """The path as the file has it, and the names that the innermost mapping knows."""
    path: list[str] = []
    names: list[str] = []
    annotation: object = settings
    for step in map(str, location):
        fields = _fields(annotation)
        tagged = _tagged(annotation, step)
        if tagged is not None:
            annotation = tagged  # pydantic names the chosen kind, the file does not
        elif step != "[key]":  # pydantic's mark for "the key itself"
            key = step if is_unknown else _key_of(annotation, step)
            path.append(key)
            names = list(fields) or names
            annotation = _below(annotation, fields.get(key))
    return tuple(path), names


def _fields(annotation: object) -> dict[str, FieldInfo]:
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return {}
    return {field.alias or name: field for name, field in annotation.model_fields.items()}


def _key_of(annotation: object, step: str) -> str:
    """The file's key; faults of defaults come with the field's name instead."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(step)
        return (field and field.alias) or step
    return step


def _below(annotation: object, field: FieldInfo | None) -> object:
    """What a step leads to: a field's type, or a mapping's type of values."""
    below = field.annotation if field else (get_args(annotation) or (None,))[-1]
    below = get_args(below)[0] if get_origin(below) is Annotated else below
    sections = [each for each in get_args(below) if _fields(each)]
    return sections[0] if len(sections) == 1 else below  # a section that may be left out


def _tagged(annotation: object, tag: str) -> type[BaseModel] | None:
    """The kind of source that a tag chooses."""
    for choice in get_args(annotation):
        kind = _fields(choice).get("kind")
        if kind is not None and tag in get_args(kind.annotation):
            return choice
    return None
