"""Faults of a configuration as lines: path, fault, remedy; from pydantic's errors.

Shows no value, which may be a secret, unless the validator put it into its message.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from service.config.environment import DELIMITER, PREFIX, variable_of
from service.config.secrets import MISSING

TEXTS = {  # {pydantic's type of error: message}
    "missing": "missing, and required",
    "model_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "string_type": "must be text; write it in quotes",
    "path_type": "must be a path",
    "tuple_type": "must be a list; write one value as [value]",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "bool_type": "must be true or false",
    "invalid_key": "is not text; write the key in quotes",
}
_OF_SECTIONS = frozenset({"model_type", "model_attributes_type"})  # types of error
_SAME_NAME, _SIMILAR_NAME = 0.9, 0.8  # similarities of variables, which have long names
_OF_SERVICES = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT(_\d+_(TCP|UDP|SCTP)\w*)?$")
BELOW = "below"  # key of an error's context: the path from the validated field to the fault


@dataclass(frozen=True, slots=True)
class _Place:
    """Location of a fault in the configuration."""

    path: tuple[str, ...]  # as in the file
    known: Mapping[str, FieldInfo]  # valid keys of the innermost mapping
    field: FieldInfo | None  # the faulty field


def known_variables(settings: object, names: Iterable[str], *path: str) -> Iterator[str]:
    """Yield the names of all environment variables; `names` are those of the dimensions."""
    for key, field in _fields(settings).items():
        yield variable_of((*path, key))
        is_named = get_origin(field.annotation) is dict
        for section in _sections(field.annotation):
            for below in [[name] for name in names] if is_named else [[]]:
                yield from known_variables(section, names, *path, key, *below)


def stray_variables(environ: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    """Yield a fault for each variable whose prefix is misspelt, which would have no effect."""
    for name in environ:
        if DELIMITER in name and not name.startswith(PREFIX):
            meant = difflib.get_close_matches(name.upper(), known, n=1, cutoff=_SAME_NAME)
            if meant:
                yield f"{name}: has no effect; did you mean {meant[0]}?"


def fault_lines(
    error: ValidationError,
    settings: type[BaseModel],
    *,
    origins: Mapping[tuple[str, ...], str],
    variables: Sequence[str] = (),
) -> Iterator[str]:
    """Yield a line for each fault; `origins` has the variables that set values, by path.

    Equal faults of one file, which several settings may name, are one line. `variables` are the
    names of all known variables.
    """
    paths: dict[tuple[str, str], list[str]] = {}  # {fault, and what makes it one: its paths}
    for details in error.errors(include_url=False):
        is_unknown = details["type"] == "extra_forbidden"
        location = (*details["loc"], *details.get("ctx", {}).get(BELOW, ()))
        place = _located(location, settings, is_unknown=is_unknown)
        path = place.path
        setters = _setters(details["type"], path, origins)
        meant = [_nearest_variable(each, variables) for each in setters]
        origin = f" (set by {', '.join(setters)}{''.join(meant[:1])})" if setters else ""
        hint = ""
        if details["type"] == MISSING and not setters:  # perhaps not the sidecar's machine
            hint = f"; if it has another path on this machine, set {variable_of(path)}=/PATH"
        text, name = f"{_text(details, place)}{hint}{origin}", ".".join(path)
        file = str(details["input"]) if path[-1].endswith("_file") else name
        paths.setdefault((text, file), []).append(name)
    for (text, _), names in paths.items():
        yield f"{', '.join(names)}: {text}"


def _setters(
    fault: str, path: tuple[str, ...], origins: Mapping[tuple[str, ...], str]
) -> list[str]:
    """The variables that set a value, or parts of an unknown or incomplete section."""
    above = {"extra_forbidden": path, "missing": path[:-1]}.get(fault)
    return [
        name
        for variable, name in origins.items()
        if path[: len(variable)] == variable or (above and variable[: len(above)] == above)
    ]


def _nearest_variable(name: str, known: Sequence[str]) -> str:
    if name in known:
        return ""
    if DELIMITER not in name and _OF_SERVICES.search(name):
        return "; Kubernetes sets it for a Service of this name: set enableServiceLinks: false"
    meant = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR_NAME)
    return f"; did you mean {meant[0]}?" if meant else ""


def _sections(annotation: object) -> list[object]:
    """The sections that a field may have, also in a mapping or one of several kinds."""
    if _fields(annotation):
        return [annotation]
    return [section for each in get_args(annotation) for section in _sections(each)]


def _text(details: ErrorDetails, place: _Place) -> str:
    context = details.get("ctx", {})
    match details["type"]:
        case "value_error":
            return str(context["error"])
        case "extra_forbidden":
            return _unknown_key(str(details["loc"][-1]), place.known)
        case "union_tag_not_found":
            return "kind is missing; set 'postgres' or 'parquet'"
        case "union_tag_invalid":
            return f"kind must be one of {context['expected_tags']}"
        case "enum" | "literal_error":
            meant = _nearest(str(details["input"]), re.findall("'(.*?)'", context["expected"]))
            return f"must be {context['expected']}{meant}"
        case kind:
            example = _example(place.field) if kind in _OF_SECTIONS else ""
            return TEXTS.get(kind, details["msg"]) + example


def _unknown_key(key: str, known: Mapping[str, FieldInfo]) -> str:
    for name, field in known.items():
        section = _below(None, field)
        if any(key in _fields(kind) for kind in (section, *get_args(section))):
            return f"unknown key; it belongs to {name}"
    return "unknown key" + (_nearest(key, known) or f"; valid keys: {', '.join(known)}")


def _nearest(word: str, words: Iterable[str]) -> str:
    """Return a question with the most similar word, or with one that starts with `word_`."""
    nearest = difflib.get_close_matches(word, words, n=1)
    nearest += [each for each in words if each.startswith(f"{word}_")]
    return f"; did you mean '{nearest[0]}'?" if nearest else ""


def _example(field: FieldInfo | None) -> str:
    if field is None or not field.examples:
        return ""
    example = ", ".join(f"{key}: {value}" for key, value in field.examples[0].items())
    return f", such as {{ {example} }}" if example else "; {} uses the defaults"


def _located(
    location: tuple[int | str, ...], settings: type[BaseModel], *, is_unknown: bool
) -> _Place:
    path: list[str] = []
    known: Mapping[str, FieldInfo] = {}
    field: FieldInfo | None = None
    annotation: object = settings
    for step in map(str, location):
        fields = _fields(annotation)
        tagged = _tagged(annotation, step)
        if tagged is not None:
            annotation = tagged  # the location contains the kind, the path does not
        elif step != "[key]":  # pydantic's mark of a faulty key
            key = step if is_unknown else _key_of(annotation, step)
            path.append(key)
            known, field = fields or known, fields.get(key)
            annotation = _below(annotation, field)
    return _Place(tuple(path), known, field)


def _fields(annotation: object) -> dict[str, FieldInfo]:
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return {}
    return {field.alias or name: field for name, field in annotation.model_fields.items()}


def _key_of(annotation: object, step: str) -> str:
    """Return the key in the file; errors of defaults contain the name of the field."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(step)
        return (field and field.alias) or step
    return step


def _below(annotation: object, field: FieldInfo | None) -> object:
    """Return the type of a field, or of the values of a mapping."""
    below = field.annotation if field else (get_args(annotation) or (None,))[-1]
    below = get_args(below)[0] if get_origin(below) is Annotated else below
    sections = [each for each in get_args(below) if _fields(each)]
    return sections[0] if len(sections) == 1 else below  # an optional section


def _tagged(annotation: object, tag: str) -> type[BaseModel] | None:
    """Return the source with this kind."""
    for choice in get_args(annotation):
        kind = _fields(choice).get("kind")
        if kind is not None and tag in get_args(kind.annotation):
            return choice
    return None
