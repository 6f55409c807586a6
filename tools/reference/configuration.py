"""docs/reference/configuration.md: the keys of the configuration file, from its JSON Schema."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from service.config.environment import variable_of
from service.config.settings import Settings
from tools.reference.markdown import (
    alternatives,
    code,
    page,
    paragraph,
    unwrapped,
    written,
)

_Schema = Mapping[str, Any]
_NAME = "NAME"  # stands for the name of a dimension
_DIMENSION = ("dimensions", _NAME)
_NOUNS = {"boolean": "`true` or `false`", "object": "mapping"}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the file: its path, its schema without `null`, and what it has in its section."""

    path: tuple[str, ...]
    schema: _Schema
    is_optional: bool  # `null` is a value
    is_required: bool
    definitions: _Schema

    @property
    def name(self) -> str:
        """The path, for a dimension without its beginning."""
        return ".".join(self.path[2:] if self.path[:2] == _DIMENSION else self.path)

    @property
    def sections(self) -> list[_Schema]:
        """The schemas of its sections: several for a source, none for a plain value."""
        found = [self._resolved(each) for each in self.schema.get("oneOf", [self.schema])]
        return [each for each in found if "properties" in each]

    @property
    def description(self) -> str:
        """The meaning of the key."""
        return str(self.schema.get("description", ""))

    @property
    def facts(self) -> str:
        """Type with bounds, default, and the environment variable."""
        facts = [self.type_text, self._default()]
        if self.path[-1] != _NAME:
            facts.append(code(variable_of(self.path)))
        return " · ".join(fact for fact in facts if fact)

    @property
    def type_text(self) -> str:
        """Type, bounds and unit."""
        text = self._type(self.schema)
        has_null_only = self.schema.get("default", {}) is None  # which the default shows
        return f"{text}, or `null`" if self.is_optional and not has_null_only else text

    def keys(self, section: _Schema) -> Iterator["Key"]:
        """The keys of a section."""
        required = section.get("required", ())
        for name, schema in section["properties"].items():
            some = [each for each in schema.get("anyOf", [schema]) if each != {"type": "null"}]
            yield replace(
                self,
                path=(*self.path, name),
                schema={**schema, **some[0]} if len(some) == 1 else schema,
                is_optional="anyOf" in schema,
                is_required=name in required,
            )

    def _resolved(self, schema: _Schema) -> _Schema:
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        return self.definitions[name] if name else schema

    def _default(self) -> str:
        if self.is_required:
            return "**required**"
        default = self.schema.get("default", {})
        if isinstance(default, dict):  # a section with the defaults of its keys
            return f"default {code('{}')}" if self.is_optional else ""
        return f"default {code(default if isinstance(default, str) else json.dumps(default))}"

    def _type(self, schema: _Schema) -> str:
        match self._resolved(schema):
            case {"enum": names}:
                text = alternatives(names)
            case {"const": name}:
                text = code(name)
            case {"x-quantity": noun, "x-minimum": low, "x-maximum": high}:
                text = f"{noun}, {low} to {high}"
            case {"type": "integer" | "number" as kind, "minimum": low, "maximum": high}:
                text = f"{kind}, {low:,} to {high:,}"
            case {"type": "array", "items": items}:
                text = f"list of {self._type(items)}s"
            case {"format": "path"}:
                text = "path"
            case {"type": kind}:
                text = _NOUNS.get(kind, str(kind))
            case other:
                message = f"no text for {other}"
                raise ValueError(message)
        return text


def root() -> Key:
    """The whole file."""
    schema = Settings.model_json_schema()
    definitions = schema.pop("$defs")
    return Key((), schema, is_optional=False, is_required=True, definitions=definitions)


def configuration_page() -> str:
    """The text of the page."""
    whole = root()
    keys = list(whole.keys(whole.schema))
    plain = [key for key in keys if not key.sections and key.path != _DIMENSION[:1]]
    parts = [written("configuration")]
    parts += [part for key in keys for part in _section_parts(key)]
    parts.append("## Other keys")
    for key in plain:
        parts += _key_parts(key)
    (dimensions,) = [key for key in keys if key.path == _DIMENSION[:1]]
    parts += ["## dimensions", paragraph(dimensions.description)]
    parts += _section_parts(_dimension(dimensions))
    return page("Configuration", parts)


def all_keys() -> Iterator[Key]:
    """All keys of the file, without sections."""
    pending = [root()]
    while pending:
        key = pending.pop()
        inner = [each for section in key.sections for each in key.keys(section)]
        if key.path == _DIMENSION[:1]:
            inner = [_dimension(key)]
        pending += inner
        if not inner:
            yield key


def _dimension(dimensions: Key) -> Key:
    schema = dimensions.schema["additionalProperties"]
    return replace(dimensions, path=_DIMENSION, schema=schema)


def _section_parts(key: Key) -> Iterator[str]:
    """Heading, meaning and plain keys of each section of a key, then the sections in them."""
    for section in key.sections:
        kind = section["properties"].get("kind", {}).get("const")
        yield f"## {'.'.join(key.path)}{f' of kind {kind}' if kind else ''}"
        if key.is_optional:
            yield paragraph(key.facts)
        yield from map(paragraph, unwrapped(section["description"]))
        inner = list(key.keys(section))
        for each in inner:
            if not each.sections:
                yield from _key_parts(each)
        if parts := [each for each in inner if each.sections]:
            yield paragraph(f"Sections in it: {', '.join(code(each.name) for each in parts)}.")
        for each in parts:
            yield from _section_parts(each)


def _key_parts(key: Key) -> list[str]:
    return [f"### {key.name}", paragraph(key.facts), paragraph(key.description)]
