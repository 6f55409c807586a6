"""Renderers: kustomize, and Helm as a Java library; nothing is applied or installed."""

import json
import platform
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from demo.maven_libraries import Library, LibrarySet, maven_libraries
from tools.debian import debian_tool
from tools.k8s.manifests import Manifest, parse_manifests

OLDEST_KUBERNETES = "1.29.0"
KUSTOMIZE_TIMEOUT_S = 60
JAVA_TIMEOUT_S = 120
SOURCES = Path(__file__).parent / "java"
HELM, MODELS = "0.0.19", "7.6.1"
NATIVE = {"x86_64": "linux-amd64", "aarch64": "linux-arm64"}[platform.machine()]
LIBRARIES = LibrarySet(
    folder=f"kubernetes-{HELM}-{MODELS}-{NATIVE}",
    title="Helm and the classes of Prometheus's operator",
    size_mb=40,
    libraries=(
        Library("com.marcnuri.helm-java", "helm-java", HELM),
        Library("com.marcnuri.helm-java", NATIVE, HELM),
        Library("io.fabric8", "openshift-model-monitoring", MODELS),
    ),
)


class KustomizationRefused(Exception):
    """Kustomize cannot build the folder; the text is its error."""


class ValuesRefused(Exception):
    """Helm renders nothing with these values; the text is its error."""


class JavaProgramFailed(Exception):
    """A Java program ended with an error; the text is its standard error."""


def build_kustomization(folder: Path) -> list[Manifest]:
    """Return what `kubectl apply -k` applies; raises KustomizationRefused and ToolUnavailable."""
    built = subprocess.run(
        [_kustomize(), "build", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=KUSTOMIZE_TIMEOUT_S,
    )
    if built.returncode:
        raise KustomizationRefused(built.stderr.strip())
    return parse_manifests(built.stdout)


def render_chart(chart: Path, values: Iterable[Path]) -> list[list[Manifest] | ValuesRefused]:
    """For each file of values its manifests, or the refusal; raises LibrariesUnavailable."""
    paths = [str(path) for path in values]
    answers = json.loads(run_java("HelmTemplate", str(chart), OLDEST_KUBERNETES, *paths))
    return [
        ValuesRefused(answer["refused"].strip())
        if "refused" in answer
        else parse_manifests(answer["rendered"])
        for answer in answers
    ]


def run_java(program: str, *arguments: str) -> str:
    """Run a source file of java/; raises JavaProgramFailed, and LibrariesUnavailable."""
    classes = f"{maven_libraries(LIBRARIES)}/*"
    java = shutil.which("java") or "java"
    command = [java, "-cp", classes, str(SOURCES / f"{program}.java"), *arguments]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=JAVA_TIMEOUT_S
    )
    if ended.returncode:
        raise JavaProgramFailed(ended.stderr.strip())
    return ended.stdout


@cache
def _kustomize() -> Path:
    # Debian has kustomize since trixie; the program also runs on older releases.
    return debian_tool("kustomize", "kustomize", suite="trixie")
