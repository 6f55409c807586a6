"""`make k8s-check`: renders and checks all of k8s/, and tells of each object whether it will do.

Needs no cluster. What is asked of an object stands in `validation` and `pod_rules`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from demo.maven_libraries import LibrariesUnavailable
from tests.debian_tool import ToolUnavailable
from tests.k8s.helm_chart import ValuesRefused
from tests.k8s.kustomization import KustomizationRefused, build_kustomization
from tests.k8s.manifests import FOLDER, POD_FILE, Manifest, read_manifest
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
            yield from _object_findings(rendering)
            yield from _pod_findings(rendering, copy)
        yield from _file_findings(copy)


def main(folder: Path = FOLDER) -> int:
    """Print a line for each object, and their number; 1 if anything is wrong, 2 without tools."""
    try:
        found = list(findings(folder))
    except (KustomizationRefused, ValuesRefused) as error:
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


def _object_findings(rendering: Rendering) -> Iterator[Finding]:
    for manifest in rendering.manifests:
        title = f"{manifest['kind']} {manifest['metadata']['name']}"
        yield Finding(rendering.name, title, faults_of(manifest))


def _pod_findings(rendering: Rendering, folder: Path) -> Iterator[Finding]:
    for pod in rendering.executor_pods:
        broken = broken_rules(deployment_of(pod, rendering, folder))
        yield Finding(rendering.name, "rules of the executor pod", broken)


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
