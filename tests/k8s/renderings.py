"""All that the manifests of k8s/ come to: plain files, kustomizations, and the chart with values.

Says what there is; whether it is right is `validation`'s business, and that of `pod_rules`.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.k8s.helm_chart import ValuesRefused, render_chart_each
from tests.k8s.kustomization import build_kustomization
from tests.k8s.manifests import CONFIG_MAP, FOLDER, POD_FILE, Manifest, parse_yaml, read_manifest
from tests.k8s.pod_rules import Deployment
from tests.k8s.validation import template_of

CHART_VALUES = sorted((Path(__file__).parent / "chart_values").glob("*.yaml"))
EVERYTHING = """resources: [../base]
components: [../components/monitoring]
"""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The objects that one command brings to a cluster."""

    name: str
    manifests: list[Manifest]
    secret_name: str = "sidelook"  # of what the user makes

    @property
    def config_map(self) -> Manifest | None:
        """The sidecar's configuration, if it is among them."""
        maps = (each for each in self.manifests if each["kind"] == "ConfigMap")
        return next((each for each in maps if "sidelook.yaml" in each.get("data", {})), None)

    @property
    def executor_pods(self) -> list[Manifest]:
        """The executor pods that they bring: in a ConfigMap as a file, or in a job."""
        return [pod for manifest in self.manifests for pod in _pods_of(manifest)]


@contextmanager
def complete_copy(folder: Path = FOLDER) -> Iterator[Path]:
    """A copy of k8s/ with what a user adds to it: a database's address, and one that has it all."""
    with TemporaryDirectory() as work:
        copy = Path(work) / "k8s"
        shutil.copytree(folder, copy)
        address = read_manifest(copy / "secret.example.yaml")["stringData"]["dsn"]
        (copy / "overlays" / "development" / "dsn").write_text(address)
        (copy / "everything").mkdir()
        (copy / "everything" / "kustomization.yaml").write_text(EVERYTHING)
        yield copy


def renderings(folder: Path) -> list[Rendering]:
    """Everything in a complete copy of k8s/.

    Raises KustomizationRefused, ManifestUnreadable and ValuesRefused, and what tells that a tool
    is not to be had.
    """
    return [*_files(folder), *_kustomizations(folder), *_charts(folder)]


def deployment_of(pod: Manifest, rendering: Rendering, folder: Path) -> Deployment:
    """A pod with the configuration that it mounts, and a secret as the example shows it."""
    secret = read_manifest(folder / "secret.example.yaml")
    secret["metadata"]["name"] = rendering.secret_name
    config_map = rendering.config_map or read_manifest(folder / CONFIG_MAP.relative_to(FOLDER))
    return Deployment(pod, config_map, secret)


def _files(folder: Path) -> Iterator[Rendering]:
    for path in (folder / "secret.example.yaml", *sorted((folder / "examples").glob("*.yaml"))):
        yield Rendering(_name(path, folder), [read_manifest(path)])


def _kustomizations(folder: Path) -> Iterator[Rendering]:
    for path in sorted(folder.rglob("kustomization.yaml")):
        if read_manifest(path).get("kind") != "Component":
            yield Rendering(_name(path.parent, folder), build_kustomization(path.parent))


def _charts(folder: Path) -> Iterator[Rendering]:
    answers = render_chart_each(folder / "chart", CHART_VALUES)
    for values, answer in zip(CHART_VALUES, answers, strict=True):
        if isinstance(answer, ValuesRefused):
            raise ValuesRefused(f"{values.name}: {answer}")
        secret_name = read_manifest(values).get("secretName", "sidelook")
        yield Rendering(f"k8s/chart with {values.stem}", answer, secret_name)


def _pods_of(manifest: Manifest) -> Iterator[Manifest]:
    match manifest["kind"]:
        case "ConfigMap" if POD_FILE in manifest.get("data", {}):
            yield parse_yaml(manifest["data"][POD_FILE])
        case "SparkApplication":
            yield template_of(manifest)


def _name(path: Path, folder: Path) -> str:
    return f"k8s/{path.relative_to(folder)}"
