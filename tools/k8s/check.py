"""Manifest check, `make k8s-check`: renders all of k8s/ and reports the faults of each object.

Needs no cluster. `validation` and `pod_rules` define the faults.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from demo.maven_libraries import LibrariesUnavailable
from tools.debian import ToolUnavailable
from tools.k8s.manifests import FOLDER, POD_FILE, ManifestUnreadable, read_manifest
from tools.k8s.pod_rules import broken_rules
from tools.k8s.renderers import KustomizationRefused, ValuesRefused, build_kustomization
from tools.k8s.renderings import (
    CHART_VALUES,
    Rendering,
    complete_copy,
    deployment_of,
    renderings,
)
from tools.k8s.validation import VERSIONS, configuration_faults, policy_faults, schema_faults


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one object."""

    place: str
    title: str
    faults: list[str]


def findings(folder: Path = FOLDER, values: Sequence[Path] = CHART_VALUES) -> Iterator[Finding]:
    """One for each object in k8s/ and each executor pod; raises what `renderings` does."""
    with complete_copy(folder) as copy:
        for rendering in renderings(copy, values):
            yield from _rendering_findings(rendering, copy)
        yield from _file_findings(copy)


def main(folder: Path = FOLDER, values: Sequence[Path] = CHART_VALUES) -> int:
    """Print a line for each object; 1 if there is a fault, 2 without a renderer."""
    try:
        found = list(findings(folder, values))
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


def _rendering_findings(rendering: Rendering, folder: Path) -> Iterator[Finding]:
    secrets = read_manifest(folder / "secret.example.yaml")["stringData"]
    for manifest in rendering.manifests:
        found = schema_faults(manifest)
        found += configuration_faults(manifest, secrets)
        found += policy_faults(manifest)
        title = f"{manifest['kind']} {manifest['metadata']['name']}"
        yield Finding(rendering.name, title, found)
    for pod in rendering.executor_pods:
        found = broken_rules(deployment_of(pod, rendering, folder))
        yield Finding(rendering.name, "rules of the executor pod", found)


def _file_findings(folder: Path) -> Iterator[Finding]:
    for path in sorted(folder.glob(f"overlays/*/{POD_FILE}")):
        overlay = f"k8s/overlays/{path.parent.name}"
        is_current = build_kustomization(path.parent / "executor-pod") == [read_manifest(path)]
        remedy = (
            f"render it again: kubectl kustomize {overlay}/executor-pod -o {overlay}/{POD_FILE}"
        )
        yield Finding(f"{overlay}/{POD_FILE}", "is up to date", [] if is_current else [remedy])


if __name__ == "__main__":
    sys.exit(main())
