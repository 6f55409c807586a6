"""Strict validation of Kubernetes objects: API schemas, configurations and network policies.

The API server drops unknown fields silently; here they are faults. Pods are judged in `pod_rules`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import kubernetes_validate
from kubeflow_spark_api.models import (  # type: ignore[import-untyped]  # it has no py.typed
    SparkV1beta2SparkApplication,
)

from lookup_core.errors import ConfigurationError
from service.config.loading import inline_secrets, load_settings
from service.config.settings import Settings
from service.config.yaml_document import read_yaml_document
from tools.k8s.manifests import POD_FILE, Manifest, parse_yaml, template_of
from tools.k8s.renderers import run_java

Schema = Manifest

# The oldest version with native sidecars, and the newest one with a published schema.
VERSIONS = ("1.29", ".".join(kubernetes_validate.latest_version().split(".")[:2]))
CONFIGURATION = "sidelook.yaml"  # the key in the ConfigMap
SECRET_FOLDER = "/etc/sidelook-secret"
_ANY_SECRET = "example:0123456789abcdef0123456789abcdef"  # valid as a token and as a header
_APACHE = Path(__file__).parent / "schemas" / "apache-spark-application.json"
_MONITORING = "io.fabric8.openshift.api.model.monitoring.v1"
# Types that the generator of Kubeflow's models turned into objects without fields.
_CORRECTED = {
    "IoK8sApimachineryPkgUtilIntstrIntOrString": {"type": ["integer", "string"]},
    "IoK8sApimachineryPkgApiResourceQuantity": {"type": ["number", "string"]},
}
# Required by the operator's own definitions, and missing in its Java classes.
_REQUIRED = {
    f"{_MONITORING}.PodMonitor": ["apiVersion", "kind", "metadata", "spec"],
    f"{_MONITORING}.PodMonitorSpec": ["podMetricsEndpoints", "selector"],
    f"{_MONITORING}.PrometheusRule": ["apiVersion", "kind", "metadata", "spec"],
    f"{_MONITORING}.Rule": ["expr"],
    f"{_MONITORING}.RuleGroup": ["name"],
}


def schema_faults(manifest: Manifest) -> list[str]:
    """Violations of the API schemas, for each version of Kubernetes, with nested pod templates."""
    schema = custom_schemas().get((manifest["apiVersion"], manifest["kind"]))
    found = [*_null_faults(manifest)]
    if schema is not None:
        found += _custom_faults(manifest, schema)
    else:
        found += [fault for version in VERSIONS for fault in _builtin_faults(manifest, version)]
    return [*found, *(fault for part in _carried(manifest) for fault in schema_faults(part))]


def configuration_faults(manifest: Manifest, secrets: Mapping[str, str]) -> list[str]:
    """What `check-config` reports on the sidecar's configuration in a ConfigMap, and passwords.

    Objects without a configuration have no faults. `secrets` is {file name: content}.
    """
    if manifest["kind"] != "ConfigMap" or CONFIGURATION not in manifest.get("data", {}):
        return []
    try:
        load_configuration(manifest, secrets)
    except ConfigurationError as error:
        return [f"{CONFIGURATION}: {fault}" for fault in error.faults]
    return []


def load_configuration(config_map: Manifest, secrets: Mapping[str, str]) -> Settings:
    """The configuration in a ConfigMap; raises ConfigurationError, also for a password in it.

    Every file in the secret's folder is taken as mounted: `pod_rules` checks the mounts.
    """
    text: str = config_map["data"][CONFIGURATION]
    with TemporaryDirectory() as work:
        folder = Path(work)
        for name in re.findall(rf"{SECRET_FOLDER}/([-.\w]+)", text):
            (folder / name).write_text(secrets.get(name, _ANY_SECRET))
            (folder / name).chmod(0o440)
        file = folder / CONFIGURATION
        file.write_text(text.replace(SECRET_FOLDER, work))
        try:
            settings = load_settings(file, {})
        except ConfigurationError as error:
            faults = [fault.removeprefix(f"{file}: ") for fault in error.faults]
            raise ConfigurationError(
                [each.replace(work, SECRET_FOLDER) for each in faults]
            ) from error
        # A ConfigMap holds no password, whatever `allow_inline_secrets` says.
        if passwords := list(inline_secrets(read_yaml_document(file).values)):
            raise ConfigurationError(passwords)
    return settings


def policy_faults(policy: Manifest) -> list[str]:
    """Ingress rules of a NetworkPolicy that admit more than the pods they name."""
    if policy["kind"] != "NetworkPolicy":
        return []
    return [
        f"spec.ingress.{number} admits more than the pods that it names"
        for number, rule in enumerate(policy["spec"].get("ingress", []))
        if not all(_names_pods(peer) for peer in rule.get("from") or [{}])
    ]


def _names_pods(peer: Manifest) -> bool:
    # A namespace selector must not be empty: it would select all namespaces.
    has_namespace = "namespaceSelector" not in peer or any(peer["namespaceSelector"].values())
    return has_namespace and {"podSelector", "namespaceSelector"} >= peer.keys() != set()


@cache
def custom_schemas() -> dict[tuple[str, str], Schema]:
    """{(apiVersion, kind): schema} of the operators' resources; raises LibrariesUnavailable.

    The sources are the Java classes of Prometheus's operator, the Python models of Kubeflow's, and
    a written schema: no registry publishes Apache's.
    """
    return {
        **_monitoring("PodMonitor", "PrometheusRule"),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): _kubeflow(),
        ("spark.apache.org/v1", "SparkApplication"): json.loads(_APACHE.read_text()),
    }


def _monitoring(*kinds: str) -> dict[tuple[str, str], Schema]:
    models = json.loads(run_java("ModelSchema", *(f"{_MONITORING}.{kind}" for kind in kinds)))
    for name, fields in _REQUIRED.items():
        models["$defs"][name]["required"] = fields
    version = "monitoring.coreos.com/v1"
    roots = zip(kinds, models["roots"], strict=True)
    return {(version, kind): {**root, "$defs": models["$defs"]} for kind, root in roots}


def _kubeflow() -> Schema:
    schema: Schema = SparkV1beta2SparkApplication.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
    schema["$defs"].update(_CORRECTED)
    return {**schema, "required": ["apiVersion", "kind", "metadata", "spec"]}


def _custom_faults(manifest: Manifest, schema: Schema) -> Iterator[str]:
    error = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    )
    if error:
        yield _with_path(error)


def _builtin_faults(manifest: Manifest, version: str) -> Iterator[str]:
    try:
        kubernetes_validate.validate(manifest, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"Kubernetes {version}: {_with_path(error)}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"Kubernetes {version} has no {manifest['kind']} of {manifest['apiVersion']}"


def _null_faults(part: object, path: str = "") -> Iterator[str]:
    # The schemas allow null everywhere. As a list of senders it would admit all of them.
    if part is None:
        yield f"{path}: null, which the API treats as absent"
    if isinstance(part, dict | list):
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            yield from _null_faults(each, f"{path}.{key}" if path else str(key))


def _carried(manifest: Manifest) -> Iterator[Manifest]:
    # Pod templates inside of another object: the outer schema does not describe them.
    if manifest["kind"] == "ConfigMap" and POD_FILE in manifest.get("data", {}):
        yield parse_yaml(manifest["data"][POD_FILE])
    if manifest["kind"] == "SparkApplication":
        yield {"apiVersion": "v1", "kind": "PodTemplate", "template": template_of(manifest)}


def _with_path(error: jsonschema.ValidationError) -> str:
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path or 'the object'}: {error.message}"
