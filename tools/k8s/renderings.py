"""Renderings of k8s/: plain files, kustomizations, and the chart with example values.

Lists the objects; `validation` and `pod_rules` judge them.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tools.k8s.manifests import (
    CONFIG_MAP,
    FOLDER,
    POD_FILE,
    Manifest,
    parse_yaml,
    read_manifest,
    template_of,
)
from tools.k8s.pod_rules import Deployment
from tools.k8s.renderers import ValuesRefused, build_kustomization, render_chart
from tools.k8s.validation import CONFIGURATION

CHART_VALUES = sorted((Path(__file__).parent / "chart_values").glob("*.yaml"))
EVERYTHING = """resources: [../base]
components: [../components/monitoring]
"""


@dataclass(frozen=True, slots=True)
class Rendering:
    """The objects that one command applies."""

    name: str
    manifests: list[Manifest]
    secret_name: str = "sidelook"  # which the user creates

    @property
    def config_map(self) -> Manifest | None:
        """The ConfigMap with the sidecar's configuration, if it is among them."""
        maps = (each for each in self.manifests if each["kind"] == "ConfigMap")
        return next((each for each in maps if CONFIGURATION in each.get("data", {})), None)

    @property
    def executor_pods(self) -> list[Manifest]:
        """The pod templates in ConfigMaps and jobs."""
        return [pod for manifest in self.manifests for pod in _pods_of(manifest)]


@contextmanager
def complete_copy(folder: Path = FOLDER) -> Iterator[Path]:
    """A copy of k8s/ with the user's database address, and an overlay of base and monitoring."""
    with TemporaryDirectory() as work:
        copy = Path(work) / "k8s"
        shutil.copytree(folder, copy)
        address = read_manifest(copy / "secret.example.yaml")["stringData"]["dsn"]
        (copy / "overlays" / "development" / "dsn").write_text(address)
        (copy / "everything").mkdir()
        (copy / "everything" / "kustomization.yaml").write_text(EVERYTHING)
        yield copy


def renderings(folder: Path, values: Sequence[Path] = CHART_VALUES) -> list[Rendering]:
    """All renderings of a complete copy of k8s/, the chart once for each file of values.

    Raises KustomizationRefused, ManifestUnreadable, ValuesRefused, and ToolUnavailable or
    LibrariesUnavailable without a renderer.
    """
    return [*_files(folder), *_kustomizations(folder), *_charts(folder, values)]


def deployment_of(pod: Manifest, rendering: Rendering, folder: Path) -> Deployment:
    """A pod with the ConfigMap that it mounts, and the example of the secret."""
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


def _charts(folder: Path, files: Sequence[Path]) -> Iterator[Rendering]:
    for values, answer in zip(files, render_chart(folder / "chart", files), strict=True):
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
