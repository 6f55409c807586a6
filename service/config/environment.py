"""Environment variables as a configuration layer: `SIDELOOK_LISTEN__HTTP` is `listen.http`.

Does not know the valid keys: validation reports an unknown variable as an unknown key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lookup_core.errors import ConfigurationError
from service.config.yaml_document import parse_yaml_document

PREFIX = "SIDELOOK_"
DELIMITER = "__"
WORDS = {
    "": None,
    "null": None,
    "true": True,
    "false": False,
}  # other values are text, lists or mappings


@dataclass(frozen=True, slots=True)
class Environment:
    """Values of the variables, their origins, and the faults."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[tuple[str, ...], str] = field(default_factory=dict)  # {path: variable}
    faults: list[str] = field(default_factory=list)


def read_environment(environ: Mapping[str, str], document: Mapping[str, Any]) -> Environment:
    """Read the variables; their names are matched with the keys of the document."""
    environment = Environment()
    # Short names first: a variable for a part overrides one for the whole.
    for name in sorted(environ, key=lambda name: (name.count(DELIMITER), name)):
        if name.startswith(PREFIX):
            try:
                _check_text(f"{name}{environ[name]}")
                path = tuple(_path(name.removeprefix(PREFIX), document))
                _put(environment.values, path, _value(environ[name]))
            except ConfigurationError as error:
                shown = name.encode(errors="backslashreplace").decode()
                environment.faults.extend(f"{shown}: {fault}" for fault in error.faults)
                continue
            if (other := environment.origins.setdefault(path, name)) != name:
                environment.faults.append(f"{name}: sets the same as {other}; remove one")
    return environment


def variable_of(path: Sequence[str]) -> str:
    """Return the name of the variable for a path."""
    words = DELIMITER.join(path).replace("-", "_").replace(".", "_")
    return f"{PREFIX}{words.upper()}"


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(["its name or value is not UTF-8 text"]) from error


def _path(name: str, document: object) -> Iterator[str]:
    """Yield the keys of a name, in the document's spelling if it has them.

    Raises ConfigurationError if the document has several keys of this spelling.
    """
    for word in name.split(DELIMITER):
        keys = document if isinstance(document, Mapping) else {}
        meant = [key for key in keys if variable_of([str(key)]) == variable_of([word])]
        if len(meant) > 1:
            named = " and ".join(map(str, meant))
            raise ConfigurationError([f"matches {named}; rename one, or set it in the file"])
        key = meant[0] if meant else word.lower()
        yield str(key)
        document = keys.get(key)


def _value(text: str) -> object:
    if not text.lstrip().startswith(("[", "{")):
        return WORDS.get(text, text)
    try:
        return parse_yaml_document(f"value: {text}").values["value"]
    except ConfigurationError as error:
        raise ConfigurationError(["starts like a list or a mapping, but is not one"]) from error


def _put(values: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for key in path[:-1]:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigurationError([f"is a part of {key!r}, which another variable sets as text"])
    values[path[-1]] = value
