"""Java programs of the checks in java/, run from their source with the libraries that they need.

Helm comes as a library of Java, and the operator of Prometheus as Java classes of its objects.
"""

import platform
import shutil
import subprocess
from pathlib import Path

from demo.maven_libraries import Library, LibrarySet, maven_libraries

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
TIMEOUT_S = 120


class JavaProgramFailed(Exception):
    """A Java program ended with an error; the text is what it printed."""


def run_java(program: str, *arguments: str) -> str:
    """What the program prints; raises JavaProgramFailed, and LibrariesUnavailable."""
    classes = f"{maven_libraries(LIBRARIES)}/*"
    java = shutil.which("java") or "java"
    command = [java, "-cp", classes, str(SOURCES / f"{program}.java"), *arguments]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    if ended.returncode:
        raise JavaProgramFailed(ended.stderr.strip())
    return ended.stdout
