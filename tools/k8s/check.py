"""Manifest check, `make k8s-check`: renders all of k8s/ and reports the faults of each object.

Needs no cluster. `validation` and `pod_rules` define the faults.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from demo.maven_libraries import LibrariesUnavailable
from tools.debian import ToolUnavailable
from tools.k8s.manifests import FOLDER, POD_FILE, Manifest, ManifestUnreadable, read_manifest
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
            yield from _object_findings(rendering, copy)
            yield from _pod_findings(rendering, copy)
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


def _object_findings(rendering: Rendering, folder: Path) -> Iterator[Finding]:
    secrets = read_manifest(folder / "secret.example.yaml")["stringData"]
    for manifest in rendering.manifests:
        found = [
            *_faults(schema_faults, manifest),
            *_faults(configuration_faults, manifest, secrets),
            *_faults(policy_faults, manifest),
        ]
        yield Finding(rendering.name, _title(manifest), found)


def _pod_findings(rendering: Rendering, folder: Path) -> Iterator[Finding]:
    title = "rules of the executor pod"
    try:
        pods = rendering.executor_pods
    except Exception as error:  # noqa: BLE001  # as in _faults
        yield Finding(rendering.name, title, [_unreadable(error)])
        return
    for pod in pods:
        yield Finding(rendering.name, title, _faults(_broken_rules, pod, rendering, folder))


def _faults(check: Callable[..., list[str]], *arguments: object) -> list[str]:
    try:
        return check(*arguments)
    except (ToolUnavailable, LibrariesUnavailable):
        raise
    except Exception as error:  # noqa: BLE001  # an object of unexpected form has a fault
        return [_unreadable(error)]


def _unreadable(error: Exception) -> str:
    return f"cannot be read: {type(error).__name__}: {error}"


def _broken_rules(pod: Manifest, rendering: Rendering, folder: Path) -> list[str]:
    return broken_rules(deployment_of(pod, rendering, folder))


def _title(manifest: Manifest) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{manifest.get('kind')} {metadata.get('name')}"


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
