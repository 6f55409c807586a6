"""JSON schemas of the objects that operators bring to Kubernetes, strict: no field but theirs.

Each comes from who knows the operator's types: Java classes made of Prometheus's operator, Python
models made of Kubeflow's. Apache's operator is in no package registry: its schema is written down
in schemas/.
"""

import json
from functools import cache
from pathlib import Path

from kubeflow_spark_api.models import (  # type: ignore[import-untyped]  # it has no py.typed
    SparkV1beta2SparkApplication,
)

from tests.k8s.java_programs import run_java
from tests.k8s.manifests import Manifest

Schema = Manifest

APACHE = Path(__file__).parent / "schemas" / "apache-spark-application.json"
MONITORING = "io.fabric8.openshift.api.model.monitoring.v1"
# What the generator of the models took for objects without fields.
MISTAKEN = {
    "IoK8sApimachineryPkgUtilIntstrIntOrString": {"type": ["integer", "string"]},
    "IoK8sApimachineryPkgApiResourceQuantity": {"type": ["number", "string"]},
}
# What the classes do not say, and the operator's own definitions demand.
REQUIRED = {
    f"{MONITORING}.PodMonitor": ["apiVersion", "kind", "metadata", "spec"],
    f"{MONITORING}.PodMonitorSpec": ["podMetricsEndpoints", "selector"],
    f"{MONITORING}.PrometheusRule": ["apiVersion", "kind", "metadata", "spec"],
    f"{MONITORING}.Rule": ["expr"],
    f"{MONITORING}.RuleGroup": ["name"],
}


@cache
def custom_schemas() -> dict[tuple[str, str], Schema]:
    """{(apiVersion, kind): schema} of all operators that are known here."""
    return {
        **_monitoring("PodMonitor", "PrometheusRule"),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): _kubeflow(),
        ("spark.apache.org/v1", "SparkApplication"): json.loads(APACHE.read_text()),
    }


def _monitoring(*kinds: str) -> dict[tuple[str, str], Schema]:
    told = json.loads(run_java("ModelSchema", *(f"{MONITORING}.{kind}" for kind in kinds)))
    for name, fields in REQUIRED.items():
        told["$defs"][name]["required"] = fields
    version = "monitoring.coreos.com/v1"
    roots = zip(kinds, told["roots"], strict=True)
    return {(version, kind): {**root, "$defs": told["$defs"]} for kind, root in roots}


def _kubeflow() -> Schema:
    schema: Schema = SparkV1beta2SparkApplication.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
    schema["$defs"].update(MISTAKEN)
    return {**schema, "required": ["apiVersion", "kind", "metadata", "spec"]}
