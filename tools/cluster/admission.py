"""Admission: what API servers of the oldest and the newest Kubernetes say of the manifests.

An API server runs in namespaces of its own, without a node. Objects are applied on the server's
side, strictly, without storing them. `python -m tools.cluster.admission` shows all of k8s/.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.cluster import IN_NAMESPACE, NAMESPACE, Cluster, KubectlFailed
from tools.cluster.machine import NODE_IP, command_inside, run, run_folder
from tools.cluster.page import Reader, checkout
from tools.cluster.programs import (
    KUBERNETES,
    MODULES,
    OLDEST_API_SERVER,
    OLDEST_KUBERNETES,
    cluster_programs,
)
from tools.debian import debian_tool
from tools.k8s.definitions import custom_resource_definitions
from tools.k8s.manifests import BASE, ROOT, Manifest
from tools.k8s.renderings import Rendering, complete_copy, renderings
from tools.processes.until import until

VERSIONS = (OLDEST_KUBERNETES, KUBERNETES)
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
_TIMEOUT_S = 300
_USED = ("etcd", "kubernetes")  # modules
# Of the page; the others need a node, or Helm's program.
SECTIONS = ("Customise with Kustomize", "Use a Spark operator", "Monitoring")

Cases = Mapping[str, Sequence[Manifest]]  # {name: objects that are applied together}


class AdmissionFailed(Exception):
    """The API server does not run; the text is the reason."""


def refusals(version: str, cases: Cases) -> dict[str, str]:
    """What the API server of a version refuses: {case: its message, empty if it admits all}.

    Pods are judged by Pod Security `restricted`. Raises AdmissionFailed, BuildFailed, and
    ToolUnavailable or LibrariesUnavailable.
    """
    answers: dict[str, str] = _ask(version, cases, ())
    return answers


def followed(version: str) -> dict[str, str]:
    """{section of k8s/README.md: output of its commands}, of those that need no node.

    Raises as `refusals` does; AdmissionFailed also for a command that fails.
    """
    outputs: dict[str, str] = _ask(version, {}, SECTIONS)
    return outputs


def _ask(version: str, cases: Cases, sections: Sequence[str]) -> Any:  # noqa: ANN401  JSON
    modules = [each for each in MODULES if each.name in _USED]
    if version == OLDEST_KUBERNETES:
        modules.insert(0, OLDEST_API_SERVER)  # before the newest one, whose kubectl is used
    programs = [str(each) for each in cluster_programs(modules, say=_say)]
    debian_tool("iproute2", "ip")
    with run_folder() as folder:
        given = {"programs": programs, "cases": cases, "sections": sections}
        task = folder / "task.json"
        task.write_text(json.dumps({**given, "types": [*custom_resource_definitions()]}))
        inside = [sys.executable, "-m", "tools.cluster.admission", str(task)]
        ended = subprocess.run(
            command_inside(folder, inside),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
    if ended.returncode:
        raise AdmissionFailed(f"Kubernetes {version}: {ended.stderr[-2000:]}")
    return json.loads(ended.stdout)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def shipped_cases() -> dict[str, list[Manifest]]:
    """All of k8s/ as a user applies it, each executor pod also as the pod that Spark makes."""
    with complete_copy() as copy:
        return {each.name: _objects(each) for each in renderings(copy)}


def _objects(rendering: Rendering) -> list[Manifest]:
    plain = [each for each in rendering.manifests if each["kind"] != "Pod"]
    pods = [*rendering.executor_pods]
    pods += [each for each in rendering.manifests if each["kind"] == "Pod"]
    return [*plain, *(started_pod(each, number) for number, each in enumerate(pods))]


def started_pod(template: Manifest, number: int = 0) -> Manifest:
    """A pod template as a pod, with what Spark adds to the executor that admission needs."""
    (executor,) = template["spec"]["containers"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": f"executor-{number}"},
        "spec": {
            **template["spec"],
            "restartPolicy": "Never",
            "containers": [{**executor, "image": "registry.example/jobs/enrich:1.0.0"}],
        },
    }


@dataclass(frozen=True, slots=True)
class _Judge:
    cluster: Cluster

    def prepare(self, definitions: Sequence[Manifest], namespaces: set[str]) -> None:
        """The types of custom resources, and namespaces."""
        labelled = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            for name, labels in [(NAMESPACE, _RESTRICTED), *((name, {}) for name in namespaces)]
        ]
        self._apply([*definitions, *labelled])
        # No controller runs that would make the first one; admission of pods demands both.
        for account in ("default", "spark"):
            self.cluster.kubectl("create", "serviceaccount", account, *IN_NAMESPACE)
        # Not by `kubectl wait`, which may fail for a definition without any condition yet.
        until(self._are_established)

    def _are_established(self) -> bool:
        definitions = self.cluster.get("customresourcedefinitions")["items"]
        conditions = [each.get("status", {}).get("conditions") or [] for each in definitions]
        established = ("Established", "True")
        return all(established in [(c["type"], c["status"]) for c in each] for each in conditions)

    def refusal(self, manifests: Sequence[Manifest]) -> str:
        """What is refused; empty if all are admitted."""
        try:
            self._apply([_placed(each) for each in manifests], "--dry-run=server")
        except KubectlFailed as error:
            return str(error)
        return ""

    def _apply(self, manifests: Sequence[Manifest], *options: str) -> None:
        file = self.cluster.folder / "applied.json"
        # Not as one List: kubectl would validate that itself, and not let the server do it.
        file.write_text("\n---\n".join(map(json.dumps, manifests)))
        strict = ("--server-side", "--force-conflicts", "--validate=strict")
        self.cluster.kubectl("apply", *strict, *options, f"--filename={file}")


def _placed(manifest: Manifest) -> Manifest:
    if manifest["kind"] == "Namespace":
        return manifest
    return {**manifest, "metadata": {"namespace": NAMESPACE, **manifest["metadata"]}}


def _judge_inside(task: Path) -> None:
    given = json.loads(task.read_text())
    ip = str(debian_tool("iproute2", "ip"))
    run(ip, "link", "set", "lo", "up")
    run(ip, "address", "add", f"{NODE_IP}/32", "dev", "lo")
    cluster = Cluster(task.parent, [*map(Path, given["programs"])])
    try:
        cluster.start_api_server()
        cases: Cases = given["cases"]
        judge = _Judge(cluster)
        every = [each for manifests in cases.values() for each in manifests]
        namespaces = {each["metadata"].get("namespace", NAMESPACE) for each in every}
        judge.prepare(given["types"], namespaces - {NAMESPACE})
        answers = {name: judge.refusal(manifests) for name, manifests in cases.items()}
        reader = Reader(checkout(task.parent, BASE), cluster.environ, {})
        answers |= {section: reader.follow(section) for section in given["sections"]}
        print(json.dumps(answers))
    finally:
        cluster.stop()


def main() -> int:
    """Print a line for each rendering and version; 1 if anything is refused."""
    cases, refused = shipped_cases(), 0
    for version in VERSIONS:
        for name, message in refusals(version, cases).items():
            refused += bool(message)
            print(f"{'REFUSED ' if message else 'admitted'} by {version}: {name} {message}")
    return 1 if refused else 0


if __name__ == "__main__":
    if sys.argv[1:]:
        _judge_inside(Path(sys.argv[1]))
    else:
        sys.exit(main())
