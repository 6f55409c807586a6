"""Whether an object is strictly what the Kubernetes API takes, with the pod templates inside it.

The API drops unknown fields in silence; here they are faults.
"""

from collections.abc import Iterator

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import kubernetes_validate

from tests.k8s.custom_schemas import Schema, custom_schemas
from tests.k8s.manifests import POD_FILE, Manifest, parse_yaml

# The oldest one that has native sidecars, and the newest one whose schemas are there.
VERSIONS = ("1.29", ".".join(kubernetes_validate.latest_version().split(".")[:2]))


def faults_of(manifest: Manifest) -> list[str]:
    """What is wrong with an object, for each version of Kubernetes; empty if nothing is."""
    key = (manifest["apiVersion"], manifest["kind"])
    if key in custom_schemas():
        found = [*_custom_faults(manifest, custom_schemas()[key])]
    else:
        found = [fault for version in VERSIONS for fault in _builtin_faults(manifest, version)]
    found = [*_null_faults(manifest), *found]
    return [*found, *(fault for part in _carried(manifest) for fault in faults_of(part))]


def _custom_faults(manifest: Manifest, schema: Schema) -> Iterator[str]:
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    )
    if error:
        yield _told(error)


def _builtin_faults(manifest: Manifest, version: str) -> Iterator[str]:
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"Kubernetes {version}: {_told(error)}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"Kubernetes {version} has no {manifest['kind']} of {manifest['apiVersion']}"


def _null_faults(part: object, path: str = "") -> Iterator[str]:
    # The schemas let null in everywhere. Of a list of senders it would leave an open door.
    if part is None:
        yield f"{path}: null, which the API takes for left out"
    if isinstance(part, dict | list):
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _null_faults(each, f"{path}.{key}" if path else str(key))


def _carried(manifest: Manifest) -> Iterator[Manifest]:
    # A pod template inside of another object is read as Kubernetes would read it on its own.
    if manifest["kind"] == "ConfigMap" and POD_FILE in manifest.get("data", {}):
        yield parse_yaml(manifest["data"][POD_FILE])
    if manifest["kind"] == "SparkApplication":
        yield {"apiVersion": "v1", "kind": "PodTemplate", "template": template_of(manifest)}


def template_of(job: Manifest) -> Manifest:
    """The template of executors in a job of either operator."""
    if "executorSpec" in job["spec"]:
        return dict(job["spec"]["executorSpec"]["podTemplateSpec"])
    return dict(job["spec"]["executor"]["template"])


def _told(error: jsonschema.ValidationError) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path or 'the object'}: {error.message}"
