"""YAML document as plain values, with repeated keys and Kubernetes manifests as faults."""

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

_CONFIG_MAP_KEY = "sidelook.yaml"


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """Values of a document, and its repeated keys as faults."""

    values: Mapping[str, Any]
    faults: tuple[str, ...] = ()


def read_yaml_document(path: Path) -> YamlDocument:
    """Read a document from a file; raises ConfigurationError if that fails."""
    try:
        return parse_yaml_document(read_text(path))
    except ConfigurationError as error:
        raise ConfigurationError([f"{path}: {fault}" for fault in error.faults]) from error


def read_text(path: Path) -> str:
    """Read UTF-8 text from a file; raises ConfigurationError with the reason if that fails."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError([f"is not UTF-8 text (byte {error.start})"]) from error


def parse_yaml_document(text: str) -> YamlDocument:
    """Parse a document; raises ConfigurationError if it is not a mapping."""
    try:
        root = _yaml().compose(text)
        values = _yaml().load(text)
    except YAMLError as error:
        raise ConfigurationError([_without_source(error)]) from error
    except ValueError as error:  # its text may contain the value, and has no line number
        fault = "contains an invalid date or too long a number; write it in quotes"
        raise ConfigurationError([fault]) from error
    except RecursionError as error:
        raise ConfigurationError(["nested too deeply"]) from error
    if root is None or values is None:
        return YamlDocument({})
    if not isinstance(values, dict):
        raise ConfigurationError(["must be a mapping of keys to values"])
    # Validation reports keys that are not text; top-level keys must be text to be validated.
    texts = {str(key): value for key, value in values.items()}
    return YamlDocument(texts, tuple(_repeated_keys(root)))


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # the parser would report only the first one
    return yaml


def _without_source(error: YAMLError) -> str:
    # The error's own text contains the line, and so perhaps a password.
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    problem = error.problem if isinstance(error, MarkedYAMLError) else "has characters not allowed"
    return f"not YAML: {problem}" + (f", in line {mark.line + 1}" if mark else "")


def _repeated_keys(root: Node) -> Iterator[str]:
    """Yield a fault for each repeated key, of which the parser keeps only one."""
    waiting: deque[tuple[Node, tuple[str, ...]]] = deque([(root, ())])
    seen: set[int] = set()  # aliases may repeat a node, or even contain it
    while waiting:
        node, path = waiting.popleft()
        if id(node) in seen or not isinstance(node, MappingNode):
            continue
        seen.add(id(node))
        first_lines: dict[str, int] = {}  # {key: line}
        for key, child in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in first_lines:
                lines = f"lines {first_lines[name]} and {line}"
                yield f"{'.'.join((*path, name))}: given twice, in {lines}"
            first_lines.setdefault(name, line)
            waiting.append((child, (*path, name)))


def manifest_fault(path: Path, values: Mapping[str, Any]) -> str | None:
    """Return a fault for a manifest, with the command that extracts the configuration."""
    kind = values.get("kind")
    if "apiVersion" not in values or not isinstance(kind, str):
        return None
    if kind != "ConfigMap":
        return f"{path}: is a Kubernetes {kind}, not a configuration"
    data = values.get("data")
    files = [str(key) for key in data] if isinstance(data, Mapping) else []
    files = [key for key in files if key.endswith((".yaml", ".yml"))]
    name = _CONFIG_MAP_KEY if _CONFIG_MAP_KEY in files or not files else files[0]
    escaped = name.replace(".", r"\.")
    # Another name than the manifest's: the shell would truncate that before kubectl reads it.
    command = ("kubectl", "patch", "--local", "-f", str(path), "-p", "{}", "-o")
    written = shlex.join([*command, f"jsonpath={{.data.{escaped}}}"])
    target = shlex.quote(f"{path.stem}.plain.yaml")
    return (
        f"{path}: is a Kubernetes ConfigMap; extract data.{name} and check that file: "
        f"{written} > {target}"
    )
