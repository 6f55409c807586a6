"""The manifests in k8s/, read as Kubernetes and Spark read them.

Only reading: what they must say stands in `pod_rules`.
"""

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
JOBS = sorted(EXAMPLES.glob("*.yaml"))  # of the operators of Spark
POD_FILE = "executor-pod-template.yaml"  # the key in ConfigMaps that carry the pod template


class ManifestUnreadable(Exception):
    """A file that holds no manifest; the text names it, and the line."""


def read_manifest(path: Path) -> Manifest:
    """The one document of a manifest file; raises ManifestUnreadable, and OSError without it."""
    try:
        document: object = parse_yaml(path.read_text())
    except (YAMLError, UnicodeDecodeError) as error:
        raise ManifestUnreadable(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ManifestUnreadable(f"{path}: no manifest, which is a mapping of names to values")
    return document


def parse_yaml(text: str) -> Manifest:
    """YAML 1.1, as of Kubernetes: `0440` is octal there, and decimal in YAML 1.2."""
    document: Manifest = _yaml().load(text)
    return document


def parse_manifests(text: str) -> list[Manifest]:
    """All documents of a text, but for the empty ones."""
    # A version that is set is forgotten after the first document: each is read on its own.
    return [manifest for part in _documents(text) if (manifest := parse_yaml(part))]


def read_spark_settings(path: Path) -> dict[str, str]:
    """The lines `key value` of a Spark properties file, without its comments."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def _documents(text: str) -> list[str]:
    return f"\n{text}".split("\n---\n")


def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    return yaml
