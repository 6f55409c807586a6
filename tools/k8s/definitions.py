"""Definitions of custom resources for an API server, made from the schemas of the checks.

No package registry has the operators' own definitions.
"""

from collections.abc import Iterator
from typing import Any

from tools.k8s.manifests import Manifest
from tools.k8s.validation import Schema, custom_schemas

_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
_NUMBER_OR_TEXT = {"x-kubernetes-int-or-string": True}
# Groups below k8s.io need it.
_PROTECTED_GROUP = {"api-approved.kubernetes.io": "unapproved, made for tests"}
_KEPT = ("enum", "required", "pattern", "minimum", "maximum")


def custom_resource_definitions() -> list[Manifest]:
    """A CustomResourceDefinition for each custom resource; raises LibrariesUnavailable."""
    return list(_definitions())


def _definitions() -> Iterator[Manifest]:
    for (api_version, kind), schema in custom_schemas().items():
        group, version = api_version.split("/")
        plural = f"{kind.lower()}s"
        fields = _structural(schema, schema, ())["properties"]
        spec = {"properties": {"spec": fields["spec"]}}
        served = {
            "name": version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], **spec}},
        }
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}", "annotations": _PROTECTED_GROUP},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [served],
            },
        }


def _structural(schema: Schema, root: Schema, path: tuple[str, ...]) -> Schema:
    """As the API server demands schemas: each field with one type, and without references."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # A type that contains itself has no structural schema.
        if name in path:
            return {"type": "object", **_ANYTHING}
        return _structural(root["$defs"][name], root, (*path, name))
    if "anyOf" in schema:
        return _alternatives(schema["anyOf"], root, path)
    kind = schema.get("type", "string" if "enum" in schema else "")
    found: dict[str, Any] = {name: schema[name] for name in _KEPT if name in schema}
    values = schema.get("additionalProperties")
    if isinstance(kind, list):
        found = dict(_NUMBER_OR_TEXT)
    elif "properties" in schema:
        fields = schema["properties"].items()
        found["type"] = "object"
        found["properties"] = {name: _structural(each, root, path) for name, each in fields}
    elif isinstance(values, dict):
        found |= {"type": "object", "additionalProperties": _structural(values, root, path)}
    elif kind == "array":
        found |= {"type": "array", "items": _structural(schema["items"], root, path)}
    elif kind in {"object", ""}:
        found |= {"type": "object", **_ANYTHING} if kind else _ANYTHING
    else:
        found["type"] = kind
    return found


def _alternatives(schemas: list[Schema], root: Schema, path: tuple[str, ...]) -> Schema:
    # Python's models allow null for each optional field; the API server drops a null.
    others = [each for each in schemas if each.get("type") != "null"]
    if len(others) == 1:
        return _structural(others[0], root, path) | {"nullable": True}
    return dict(_NUMBER_OR_TEXT)
