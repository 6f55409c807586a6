"""`make k8s-check`: renders and checks all of k8s/, and tells of each object whether it will do.

Needs no cluster. What is asked of an object stands in `validation`, `configurations`,
`network_policies` and `pod_rules`.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from demo.maven_libraries import LibrariesUnavailable
from tests.debian_tool import ToolUnavailable
from tests.k8s.configurations import configuration_faults
from tests.k8s.helm_chart import ValuesRefused
from tests.k8s.kustomization import KustomizationRefused, build_kustomization
from tests.k8s.manifests import FOLDER, POD_FILE, Manifest, ManifestUnreadable, read_manifest
from tests.k8s.network_policies import open_rules
from tests.k8s.pod_rules import broken_rules
from tests.k8s.renderings import Rendering, complete_copy, deployment_of, renderings
from tests.k8s.validation import VERSIONS, faults_of


@dataclass(frozen=True, slots=True)
class Finding:
    """What one object was found to be."""

    place: str
    title: str
    faults: list[str]


def findings(folder: Path = FOLDER) -> Iterator[Finding]:
    """Of each object of k8s/, and of each executor pod; raises what `renderings` does."""
    with complete_copy(folder) as copy:
        for rendering in renderings(copy):
            yield from _object_findings(rendering, copy)
            yield from _pod_findings(rendering, copy)
        yield from _file_findings(copy)


def main(folder: Path = FOLDER) -> int:
    """Print a line for each object, and their number; 1 if anything is wrong, 2 without tools."""
    try:
        found = list(findings(folder))
    except (KustomizationRefused, ManifestUnreadable, ValuesRefused) as error:
        typer.echo(f"cannot be rendered: {error}")
        return 1
    except (ToolUnavailable, LibrariesUnavailable) as error:
        typer.echo(f"cannot be checked here: {error}")
        return 2
    for finding in found:
        typer.echo(f"{'FAULT' if finding.faults else 'ok   '} {finding.place}: {finding.title}")
        typer.echo("".join(f"        {fault}\n" for fault in finding.faults), nl=False)
    faulty = sum(bool(finding.faults) for finding in found)
    typer.echo(f"{len(found)} checked for Kubernetes {' and '.join(VERSIONS)}, {faulty} at fault")
    return 1 if faulty else 0


def _object_findings(rendering: Rendering, folder: Path) -> Iterator[Finding]:
    secrets = read_manifest(folder / "secret.example.yaml")["stringData"]
    for manifest in rendering.manifests:
        found = [
            *_told(faults_of, manifest),
            *_told(configuration_faults, manifest, secrets),
            *_told(_open_rules, manifest),
        ]
        yield Finding(rendering.name, _title(manifest), found)


def _pod_findings(rendering: Rendering, folder: Path) -> Iterator[Finding]:
    title = "rules of the executor pod"
    try:
        pods = rendering.executor_pods
    except Exception as error:  # noqa: BLE001  # as in _told
        yield Finding(rendering.name, title, [_unread(error)])
        return
    for pod in pods:
        broken = _told(_broken_rules, pod, rendering, folder)
        yield Finding(rendering.name, title, broken)


def _told(check: Callable[..., list[str]], *arguments: object) -> list[str]:
    try:
        return check(*arguments)
    except (ToolUnavailable, LibrariesUnavailable):
        raise
    except Exception as error:  # noqa: BLE001  # an object of unforeseen form is a fault like others
        return [_unread(error)]


def _unread(error: Exception) -> str:
    return f"cannot be read: {type(error).__name__}: {error}"


def _broken_rules(pod: Manifest, rendering: Rendering, folder: Path) -> list[str]:
    return broken_rules(deployment_of(pod, rendering, folder))


def _open_rules(manifest: Manifest) -> list[str]:
    return open_rules(manifest) if manifest["kind"] == "NetworkPolicy" else []


def _title(manifest: Manifest) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{manifest.get('kind')} {metadata.get('name')}"


def _file_findings(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.glob(f"overlays/*/{POD_FILE}")):
        built = build_kustomization(path.parent / "executor-pod")
        place = path.relative_to(folder)
        yield Finding(f"k8s/{place}", "is up to date", _staleness(path, built))


def _staleness(path: Path, built: list[Manifest]) -> list[str]:
    if built == [read_manifest(path)]:
        return []
    overlay = f"k8s/overlays/{path.parent.name}"
    return [f"write it anew: kubectl kustomize {overlay}/executor-pod -o {overlay}/{POD_FILE}"]


if __name__ == "__main__":
    sys.exit(main())
