"""Definitions of custom resources for an API server, which admit any fields.

No package registry has the operators' own definitions; `validation` has schemas of the fields.
"""

from collections.abc import Iterator

from tools.k8s.manifests import Manifest
from tools.k8s.validation import custom_schemas

_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Groups below k8s.io need it.
_PROTECTED_GROUP = {"api-approved.kubernetes.io": "unapproved, made for tests"}


def custom_resource_definitions() -> Iterator[Manifest]:
    """A CustomResourceDefinition for each custom resource; raises LibrariesUnavailable."""
    for api_version, kind in custom_schemas():
        group, version = api_version.split("/")
        plural = f"{kind.lower()}s"
        served = {"name": version, "served": True, "storage": True}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}", "annotations": _PROTECTED_GROUP},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [{**served, "schema": {"openAPIV3Schema": _ANYTHING}}],
            },
        }
