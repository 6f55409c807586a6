"""Kubernetes manifests and Spark properties in k8s/, parsed as Kubernetes and Spark parse them."""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

Manifest = dict[str, Any]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "k8s"
BASE = FOLDER / "base"
POD_TEMPLATE = BASE / "executor-pod" / "executor-pod-template.yaml"
CONFIG_MAP = BASE / "config-map.yaml"
SECRET = FOLDER / "secret.example.yaml"
SPARK_SETTINGS = FOLDER / "spark.conf"
CHART = FOLDER / "chart"
EXAMPLES = FOLDER / "examples"
JOBS = sorted(EXAMPLES.glob("*-spark-application.yaml"))  # SparkApplications of both operators
POD_FILE = "executor-pod-template.yaml"  # the key in ConfigMaps that carry the pod template


class ManifestUnreadable(Exception):
    """A file without a manifest; the text names the file and the line."""


def read_manifest(path: Path) -> Manifest:
    """The only document of a file; raises ManifestUnreadable, and OSError if it does not exist."""
    try:
        document: object = parse_yaml(path.read_text())
    except (YAMLError, UnicodeDecodeError) as error:
        raise ManifestUnreadable(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ManifestUnreadable(f"{path}: no manifest, which is a mapping of names to values")
    return document


def parse_yaml(text: str) -> Manifest:
    """YAML 1.1, as in Kubernetes: `0440` is octal there, and decimal in YAML 1.2."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    document: Manifest = yaml.load(text)
    return document


def parse_manifests(text: str) -> list[Manifest]:
    """All documents of a text; empty documents are skipped."""
    # The parser forgets its YAML version after the first document: each is parsed on its own.
    documents = f"\n{text}".split("\n---\n")
    return [manifest for part in documents if (manifest := parse_yaml(part))]


def read_spark_settings(path: Path) -> dict[str, str]:
    """The lines `key value` of a Spark properties file, without comments."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def template_of(job: Manifest) -> Manifest:
    """The pod template of the executors in a SparkApplication of either operator."""
    if "executorSpec" in job["spec"]:
        return dict(job["spec"]["executorSpec"]["podTemplateSpec"])
    return dict(job["spec"]["executor"]["template"])
