"""Prometheus in the cluster: it finds the pods as the PodMonitor does, and has the shipped rules.

The durations of the rules are divided, because an alert waits for minutes: so are the intervals.
"""

import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.cluster import NAMESPACE as JOBS_NAMESPACE
from tools.cluster.cluster import Cluster
from tools.cluster.images import PAUSE
from tools.k8s.manifests import FOLDER, Manifest, read_manifest

NAMESPACE = "monitoring"  # admitted by network-policy-prometheus.yaml
PACE = 20  # a minute takes three seconds
_MINUTES = re.compile(r"(?<![\w.])(\d+)m\b")
_FOLDER = FOLDER / "components" / "monitoring"
_PROGRAM, _PORT, _NOBODY = "prometheus", 9090, 65534
_LABEL = "__meta_kubernetes_pod_label_"


@dataclass(frozen=True, slots=True)
class Monitoring:
    """The server, and what it says; asked through the API server."""

    cluster: Cluster

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        file = self.cluster.folder / "monitoring.json"
        folders = [each for each in self.cluster.programs if (each / _PROGRAM).exists()]
        file.write_text("\n---\n".join(map(json.dumps, _objects(folders[0]))))
        self.cluster.kubectl("apply", f"--filename={file}")
        ready = ("wait", "--for=condition=Ready", "pod/prometheus", "--timeout=80s")
        self.cluster.kubectl(*ready, f"--namespace={NAMESPACE}")

    def scraped(self) -> set[str]:
        """Names of the pods that are scraped with success."""
        found = self._get("query", query="up == 1")["data"]["result"]
        return {each["metric"]["pod"] for each in found}

    def firing(self) -> set[str]:
        """The firing alerts, each as `name severity`."""
        alerts = self._get("alerts")["data"]["alerts"]
        labels = [each["labels"] for each in alerts if each["state"] == "firing"]
        return {f"{each['alertname']} {each['severity']}" for each in labels}

    def _get(self, name: str, **parameters: str) -> dict[str, Any]:
        pod = f"/api/v1/namespaces/{NAMESPACE}/pods/prometheus:{_PORT}/proxy"
        query = urllib.parse.urlencode(parameters)
        answer: dict[str, Any] = json.loads(
            self.cluster.kubectl("get", "--raw", f"{pod}/api/v1/{name}?{query}")
        )
        return answer


def scrape_config(monitor: Manifest) -> dict[str, Any]:
    """What the Prometheus operator makes of a PodMonitor."""
    spec = monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    kept = {
        f"{_LABEL}{_sanitized(label)}": text
        for label, text in spec["selector"]["matchLabels"].items()
    } | {"__meta_kubernetes_pod_container_port_name": endpoint["port"]}
    copied = {
        "namespace": "__meta_kubernetes_namespace",
        "pod": "__meta_kubernetes_pod_name",
        "container": "__meta_kubernetes_pod_container_name",
    } | {_sanitized(each): f"{_LABEL}{_sanitized(each)}" for each in spec["podTargetLabels"]}
    ended = ("__meta_kubernetes_pod_phase", "(Failed|Succeeded)", "drop")
    rules = [*((source, text, "keep") for source, text in kept.items()), ended]
    return {
        "job_name": "sidelook",
        "metrics_path": endpoint["path"],
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [JOBS_NAMESPACE]}}],
        "relabel_configs": [
            *(
                {"source_labels": [source], "regex": text, "action": action}
                for source, text, action in rules
            ),
            *(
                {"source_labels": [source], "target_label": label}
                for label, source in copied.items()
            ),
        ],
    }


def quick_rules(rules: Manifest) -> str:
    """The rule file of a PrometheusRule with durations that are divided by PACE."""

    def shorter(duration: re.Match[str]) -> str:
        return f"{int(duration[1]) * 60 // PACE}s"

    return _MINUTES.sub(shorter, json.dumps(rules["spec"]))


def _sanitized(label: str) -> str:
    return re.sub(r"\W", "_", label)


def _objects(program: Path) -> Iterator[Manifest]:
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    placed = {"name": "prometheus", "namespace": NAMESPACE}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": placed}
    rights = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    groups = "rbac.authorization.k8s.io"
    in_jobs = {"name": "prometheus", "namespace": JOBS_NAMESPACE}
    yield {
        "apiVersion": f"{groups}/v1",
        "kind": "Role",
        "metadata": in_jobs,
        "rules": [rights],
    }
    yield {
        "apiVersion": f"{groups}/v1",
        "kind": "RoleBinding",
        "metadata": in_jobs,
        "roleRef": {"apiGroup": groups, "kind": "Role", "name": "prometheus"},
        "subjects": [{"kind": "ServiceAccount", **placed}],
    }
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["sidelook.rules.yml"],
        "scrape_configs": [scrape_config(read_manifest(_FOLDER / "pod-monitor.yaml"))],
    }
    files = {
        "prometheus.yml": json.dumps(settings),
        "sidelook.rules.yml": quick_rules(read_manifest(_FOLDER / "prometheus-rule.yaml")),
    }
    yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": placed, "data": files}
    yield _pod(placed, program)


def _pod(placed: dict[str, str], program: Path) -> Manifest:
    # The program comes from the node: it needs nothing of an image.
    volumes: dict[str, Manifest] = {
        "program": {"hostPath": {"path": str(program)}},
        "config": {"configMap": {"name": "prometheus"}},
        "data": {"emptyDir": {}},
    }
    container = {
        "name": "prometheus",
        "image": PAUSE,
        "command": [f"/program/{_PROGRAM}"],
        "args": ["--config.file=/config/prometheus.yml", "--storage.tsdb.path=/data"],
        "ports": [{"containerPort": _PORT}],
        "readinessProbe": {"httpGet": {"path": "/-/ready", "port": _PORT}, "periodSeconds": 1},
        "volumeMounts": [{"name": each, "mountPath": f"/{each}"} for each in volumes],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": placed,
        "spec": {
            "serviceAccountName": "prometheus",
            "securityContext": {"runAsUser": _NOBODY, "fsGroup": _NOBODY},
            "containers": [container],
            "volumes": [{"name": name, **kind} for name, kind in volumes.items()],
        },
    }
