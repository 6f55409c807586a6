"""YAML file as plain values; a Kubernetes manifest in its place is recognised."""

import shlex
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from lookup_core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """What a file says, and the faults in how it says it."""

    values: Mapping[str, Any]
    faults: tuple[str, ...] = ()


def read_yaml_document(path: Path) -> YamlDocument:
    """The document in the file; raises ConfigurationError if it holds none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"{path}: not UTF-8 text (byte {error.start})"]) from error
    try:
        return parse_yaml_document(text)
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {fault}" for fault in error.faults]) from error


def parse_yaml_document(text: str) -> YamlDocument:
    """The document in the text; raises ConfigurationError if it is no mapping."""
    try:
        root = _yaml().compose(text)
        values = _yaml().load(text)
    except YAMLError as error:
        raise ConfigurationError([_without_source(error)]) from error
    except ValueError as error:  # its text may show the value, and does not say where it stands
        fault = "has a date that does not exist, or a number too long; write it in quotes"
        raise ConfigurationError([fault]) from error
    except RecursionError as error:
        raise ConfigurationError(["nested too deeply"]) from error
    if root is None or values is None:
        return YamlDocument({})
    if not isinstance(values, dict):
        raise ConfigurationError(["must be a mapping of keys to values"])
    # Other keys than texts are refused later; at the top they must be texts to get there.
    texts = {str(key): value for key, value in values.items()}
    return YamlDocument(texts, tuple(_repeated_keys(root)))


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # all of them are listed here, not only the first
    return yaml


def _without_source(error: YAMLError) -> str:
    # The error's own text shows the line, which may hold a password.
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    problem = error.problem if isinstance(error, MarkedYAMLError) else "has characters not allowed"
    return f"not YAML: {problem}" + (f", in line {mark.line + 1}" if mark else "")


def _repeated_keys(root: Node) -> Iterator[str]:
    """A fault for each key that a mapping has twice; the parser would take one in silence."""
    waiting: deque[tuple[Node, tuple[str, ...]]] = deque([(root, ())])
    seen: set[int] = set()  # an alias leads to a node again, even to one around it
    while waiting:
        node, path = waiting.popleft()
        if id(node) in seen or not isinstance(node, MappingNode):
            continue
        seen.add(id(node))
        yield from _repeated_keys_of(node, path)
        waiting.extend((child, (*path, str(key.value))) for key, child in node.value)


def _repeated_keys_of(mapping: MappingNode, path: tuple[str, ...]) -> Iterator[str]:
    first_lines: dict[str, int] = {}  # {key: line}
    for key, _ in mapping.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in first_lines:
            lines = f"lines {first_lines[name]} and {line}"
            yield f"{'.'.join((*path, name))}: given twice, in {lines}"
        first_lines.setdefault(name, line)


_SUFFIXES = (".yaml", ".yml")
_USUAL = "sidelook.yaml"


def manifest_fault(path: Path, values: Mapping[str, Any]) -> str | None:
    """What is said of a manifest, with the command that takes the configuration out of it."""
    kind = values.get("kind")
    if "apiVersion" not in values or not isinstance(kind, str):
        return None
    if kind != "ConfigMap":
        return f"{path}: is a Kubernetes {kind}, not a configuration"
    name = _configuration_of(values.get("data"))
    escaped = name.replace(".", r"\.")
    # Not the manifest's own name, which the shell would empty before it is read.
    command = ("kubectl", "patch", "--local", "-f", str(path), "-p", "{}", "-o")
    written = shlex.join([*command, f"jsonpath={{.data.{escaped}}}"])
    target = shlex.quote(f"{path.stem}.plain.yaml")
    return (
        f"{path}: is a Kubernetes ConfigMap; check what stands below its data.{name}: "
        f"{written} > {target}"
    )


def _configuration_of(data: object) -> str:
    """The key that looks most like a file of ours."""
    names = [str(name) for name in data] if isinstance(data, Mapping) else []
    files = [name for name in names if name.endswith(_SUFFIXES)]
    return _USUAL if _USUAL in files else (files or [_USUAL])[0]
