"""The chart brings what kustomize brings, and refuses values that would harm."""

import json
import re
from copy import deepcopy
from pathlib import Path

import pytest

from service.config.settings import Settings
from tests.k8s.helm_chart import ValuesRefused, render_chart, render_chart_each
from tests.k8s.kustomization import build_kustomization
from tests.k8s.manifests import CHART, POD_FILE, Manifest, parse_yaml, read_manifest
from tests.k8s.renderings import CHART_VALUES, Rendering, complete_copy
from tests.k8s.test_config_map import load

pytestmark = pytest.mark.integration

HELMS_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
# {values that are refused: what Helm says about them}
REFUSALS: dict[str, tuple[Manifest, str]] = {
    "misspelt": ({"imge": {}}, "additional properties 'imge' not allowed"),
    "misspelt below": (
        {"monitoring": {"podMonitor": {"intervals": "5s"}}},
        "at '/monitoring/podMonitor': additional properties 'intervals' not allowed",
    ),
    "wrong type": (
        {"networkPolicy": {"spark": {"enabled": "no"}}},
        "at '/networkPolicy/spark/enabled': got string, want boolean",
    ),
    "tag that moves": (
        {"image": {"tag": "latest"}},
        "at '/image/tag': 'latest' does not match pattern",
    ),
    "lookups by TCP": (
        {"config": {"listen": {"http": "0.0.0.0:8815"}}},
        "at '/config/listen/http': got string, want null",
    ),
    "health on loopback": (
        {"config": {"listen": {"health": "127.0.0.1:8816"}}},
        "at '/config/listen/health': value must be '0.0.0.0:8816'",
    ),
    "no dimension": (
        {"config": {"dimensions": {"customers": None}}},
        "at '/config/dimensions': minProperties: got 0, want 1",
    ),
    "hasty start": (
        {"startupSeconds": 60},
        "at '/startupSeconds': minimum: got 60, want 601",
    ),
    "caches larger than the container": (
        {"config": {"limits": {"memory": "1GiB"}}},
        "resources.memory: 768Mi is less than half as much again as config.limits.memory, which is",
    ),
}


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Manifest] | ValuesRefused]:
    """What Helm makes of each bad file of values."""
    folder = tmp_path_factory.mktemp("values")
    files = [folder / f"{name}.yaml" for name in REFUSALS]
    for file, (values, _) in zip(files, REFUSALS.values(), strict=True):
        file.write_text(json.dumps(values))
    return dict(zip(REFUSALS, render_chart_each(CHART, files), strict=True))


@pytest.fixture(scope="module")
def charts() -> dict[str, Rendering]:
    """What Helm makes of each good file of values."""
    answers = zip(CHART_VALUES, render_chart_each(CHART, CHART_VALUES), strict=True)
    return {
        file.stem: Rendering(file.stem, answer)
        for file, answer in answers
        if not isinstance(answer, ValuesRefused)
    }


def normalised(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """{(kind, name): object}, without Helm's own labels, and texts of YAML and JSON as values."""
    manifests = deepcopy(manifests)
    for manifest in manifests:
        for label in HELMS_LABELS:
            manifest["metadata"]["labels"].pop(label, None)
        texts = manifest.get("data", {})
        texts.update({key: parse_yaml(text) for key, text in texts.items()})
    return {(each["kind"], each["metadata"]["name"]): each for each in manifests}


def test_defaults_bring_what_kustomize_brings(charts: dict[str, Rendering]) -> None:
    """The chart as it comes is the base with monitoring, object by object."""
    with complete_copy() as copy:
        built = build_kustomization(copy / "everything")

    assert normalised(charts["defaults"].manifests) == normalised(built)


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_values_are_refused(
    case: str, refusals: dict[str, list[Manifest] | ValuesRefused]
) -> None:
    """Nothing is rendered, and Helm says which value is wrong."""
    answer = refusals[case]

    assert isinstance(answer, ValuesRefused)
    assert REFUSALS[case][1] in str(answer)


def test_refusal_of_one_file_is_raised(tmp_path: Path) -> None:
    """Whoever renders one file of values cannot take a refusal for an empty chart."""
    values = tmp_path / "values.yaml"
    values.write_text("imge: {}")

    with pytest.raises(ValuesRefused, match="imge"):
        render_chart(CHART, values)


@pytest.mark.parametrize("case", [path.stem for path in CHART_VALUES])
def test_configuration_is_passed_through(
    case: str, charts: dict[str, Rendering], tmp_path: Path
) -> None:
    """What stands below `config` in the values is a configuration that the sidecar takes."""
    config_map = charts[case].config_map
    assert config_map is not None

    settings: Settings = load(tmp_path, config_map["data"]["sidelook.yaml"])

    assert settings.listen.unix == Path("/run/sidelook/sidelook.sock")


def test_values_reach_their_places(charts: dict[str, Rendering]) -> None:
    """Image, memory, secret and patience of the values are those of the pod."""
    (pod,) = charts["production"].executor_pods

    (sidecar,) = pod["spec"]["initContainers"]
    assert sidecar["image"] == "registry.example:5000/platform/sidelook:0.1.1"
    assert sidecar["resources"] == {
        "requests": {"cpu": "2", "memory": "3Gi"},
        "limits": {"memory": "3Gi"},
    }
    assert sidecar["startupProbe"]["failureThreshold"] == 900
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    ("case", "folder"),
    [
        ("defaults", "docs/runbooks/"),
        ("production", "https://git.example/platform/sidelook/blob/main/docs/runbooks/"),
    ],
)
def test_runbooks_have_an_address(case: str, folder: str, charts: dict[str, Rendering]) -> None:
    """What the values name stands before the path of each alert's page."""
    made = normalised(charts[case].manifests)

    groups = made["PrometheusRule", "sidelook"]["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert {rule["annotations"]["runbook_url"] for rule in alerts} == {
        f"{folder}{rule['alert']}.md" for rule in alerts
    }


def test_overlay_of_the_page_gives_runbooks_an_address() -> None:
    """What the README shows puts an address before each path, as the chart's value does."""
    text = (CHART.parent / "README.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(patches:.*?)^```$", text, re.MULTILINE | re.DOTALL)
    with complete_copy() as copy:
        with (copy / "everything" / "kustomization.yaml").open("a") as file:
            file.write(shown)
        built = normalised(build_kustomization(copy / "everything"))

    groups = built["PrometheusRule", "sidelook"]["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    address = "https://git.example/platform/sidelook/blob/main/docs/runbooks"
    assert {rule["annotations"]["runbook_url"] for rule in alerts} == {
        f"{address}/{rule['alert']}.md" for rule in alerts
    }


def test_what_is_switched_off_is_not_made(charts: dict[str, Rendering]) -> None:
    """Without operators and policies the two ConfigMaps are left, under the given name."""
    made = normalised(charts["without-operators"].manifests)

    name = "sidelook-returns"
    assert set(made) == {("ConfigMap", name), ("ConfigMap", f"{name}-executor-pod")}
    pod = made["ConfigMap", f"{name}-executor-pod"]["data"][POD_FILE]
    assert {"name": name, "defaultMode": 0o444} in [
        volume.get("configMap") for volume in pod["spec"]["volumes"]
    ]


def test_every_value_is_described() -> None:
    """The schema is strict at each level whose keys are the chart's, and says what a value is."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    pending, found = [("", schema)], []
    while pending:
        path, part = pending.pop()
        own = {**part.get("properties", {})}
        pending += [(f"{path}/{name}", each) for name, each in own.items()]
        if path and "description" not in part:
            found.append(path)

    assert found == []
    assert schema["additionalProperties"] is False


def test_chart_is_of_the_projects_version() -> None:
    """The chart runs the image that the pod template names."""
    chart = read_manifest(CHART / "Chart.yaml")
    template = read_manifest(CHART.parent / "base" / "executor-pod" / POD_FILE)

    (sidecar,) = template["spec"]["initContainers"]
    assert sidecar["image"] == f"sidelook:{chart['appVersion']}"
