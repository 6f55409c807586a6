"""The Helm chart renders what kustomize builds, and refuses harmful values."""

import json
import re
from copy import deepcopy
from typing import Any

import pytest

from service.config.settings import Settings
from tools.k8s.chart_schema import FILE, chart_schema
from tools.k8s.manifests import CHART, POD_FILE, Manifest, parse_yaml
from tools.k8s.renderers import ValuesRefused, build_kustomization, render_chart
from tools.k8s.renderings import CHART_VALUES, Rendering, complete_copy
from tools.k8s.validation import schema_faults

pytestmark = pytest.mark.full

HELMS_LABELS = ("app.kubernetes.io/managed-by", "helm.sh/chart")
MONITOR = "monitoring.podMonitor"
RUNBOOKS = "monitoring.prometheusRule.runbookBaseUrl"
NAMESPACE = "networkPolicy.prometheus.namespace"
CUSTOMERS = "config.dimensions.customers"
DSN = f"{CUSTOMERS}.source.dsn"
UNFIT = "does not match pattern"
PASSWORD = "config.dimensions.customers.source.dsn: holds a password; put it in dsn_file"
# (value, what it is, what Helm reports)
REFUSALS: list[tuple[str, object, str]] = [
    ("imge", {}, "additional properties 'imge' not allowed"),
    (f"{MONITOR}.intervals", "5s", "additional properties 'intervals' not allowed"),
    ("networkPolicy.spark.enabled", "no", "got string, want boolean"),
    (NAMESPACE, "monitoring\n        - ipBlock: {cidr: 0.0.0.0/0}", UNFIT),
    (NAMESPACE, "Not A Name!", UNFIT),
    ("image.tag", "latest", UNFIT),
    ("image.pullSecrets", ["x\n  hostNetwork: true"], "at '/image/pullSecrets/0'"),
    ("image.pullSecrets", ["a: b"], "at '/image/pullSecrets/0'"),
    ("image.repository", "#x", UNFIT),
    ("image.repository", "{{x", UNFIT),
    ("image.repository", "*x", UNFIT),
    ("image.repository", "x@sha256", UNFIT),
    ("image.repository", "x:1", UNFIT),
    ("resources.cpu", "0.0", "at '/resources/cpu'"),
    ("resources.cpu", 0, "at '/resources/cpu'"),
    ("startupSeconds", 60, "minimum: got 60, want 601"),
    (f"{MONITOR}.labels", {"a b": "c"}, "additional properties 'a b' not allowed"),
    (f"{MONITOR}.labels.a", "d!", "at '/monitoring/podMonitor/labels/a'"),
    (f"{MONITOR}.labels", {"app.kubernetes.io/name": "y"}, "/app.kubernetes.io~1name'"),
    (f"{MONITOR}.scrapeTimeout", "61s", "61s is longer than interval, which is"),
    (RUNBOOKS, "https://git.example/main", UNFIT),
    (RUNBOOKS, "https://git.example/\n  x: /", UNFIT),
    ("config.listen.http", "0.0.0.0:8815", "got string, want null"),
    ("config.listen.health", "127.0.0.1:8816", "value must be '0.0.0.0:8816'"),
    ("config.limits.memory", "1GiB", "768Mi is less than 1.5 times config.limits"),
    ("config.allow_inline_secrets", True, "value must be false"),
    ("config.tracing.endpoint", "http://user:password@host:4318", "at '/config/tracing/endpoint'"),
    ("config.dimensionz", {}, "additional properties 'dimensionz' not allowed"),
    (CUSTOMERS, None, "minProperties: got 0, want 1"),
    (f"{CUSTOMERS}.timeoutt", "2s", "additional properties 'timeoutt' not allowed"),
    (f"{CUSTOMERS}.timeout", "soon", "at '/config/dimensions/customers/timeout'"),
    (f"{CUSTOMERS}.batch.max_key", 5, "additional properties 'max_key' not allowed"),
    (f"{CUSTOMERS}.batch.max_keys", "many", "got string, want integer"),
    (f"{CUSTOMERS}.key", None, "missing property 'key'"),
    (f"{CUSTOMERS}.cache.share", False, "got boolean, want string"),
    (f"{CUSTOMERS}.source.kind", "mysql", "customers/source"),
    (f"{CUSTOMERS}.default.id", 1234567890123456789, "default/id': maximum:"),
    (f"{CUSTOMERS}.cache", {"mode": "full", "warmup_max_wait": 600}, "cache/warmup_max_wait'"),
    (
        f"{CUSTOMERS}.cache",
        {"mode": "full", "warmup_max_wait": "2h"},
        "startupSeconds: 660 is not a minute more than warmup_max_wait of dimension customers, 2h",
    ),
    (f"{CUSTOMERS}.cache,startupSeconds", ({"mode": "full"}, 659), "dimension customers, 10m"),
    (DSN, "postgresql://user:password@host/database", PASSWORD),
    (DSN, "postgresql://user:pass/word@host/database", PASSWORD),
    (DSN, "postgresql://user@host/database?sslmode=require&password=secret", PASSWORD),
    (DSN, "postgresql://user@host/database?sslpassword=secret", PASSWORD),
    (DSN, "postgresql://user@host/database?pass%77ord=secret", PASSWORD),
]
WORDS = ("123", "true", "1e3", "null")  # texts that YAML reads as something else
NAMED = f"name,secretName,{NAMESPACE}"
# (values, what they are): each is valid
RENDERED: list[tuple[str, object]] = [
    *((NAMED, (word, word, word)) for word in WORDS),
    ("image.pullSecrets", ["123"]),
    (f"{MONITOR}.interval,{MONITOR}.scrapeTimeout", ("1m", "60s")),
    (f"{CUSTOMERS}.cache,startupSeconds", ({"mode": "full", "warmup_max_wait": "1d"}, 1_000_000)),
    (DSN, "postgresql://user@host:5432/database?sslmode=require"),
    (f"{CUSTOMERS}.cache.share", "off"),
    ("config.auth,config.tracing.endpoint", ({}, "http://host:4318")),
]
Answers = list[list[Manifest] | ValuesRefused]


def values_of(paths: str, values: object) -> Manifest:
    """Nested values with these dotted paths; a DSN replaces the file of the DSN."""
    made: Manifest = {}
    several = values if isinstance(values, tuple) else (values,)
    for path, value in zip(paths.split(","), several, strict=True):
        *steps, last = path.split(".")
        part = made
        for step in steps:
            part = part.setdefault(step, {})
        part[last] = value
        if path == DSN:
            part["dsn_file"] = None
    return made


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What Helm answers for each of the values."""
    folder = tmp_path_factory.mktemp("values")
    cases = [*(case[:2] for case in REFUSALS), *RENDERED]
    files = [folder / f"{number}.yaml" for number in range(len(cases))]
    for file, (paths, values) in zip(files, cases, strict=True):
        file.write_text(json.dumps(values_of(paths, values)))
    return render_chart(CHART, files)


@pytest.fixture(scope="module")
def charts() -> dict[str, Rendering]:
    """What Helm renders for the files of values that the manifest check uses."""
    answers = zip(CHART_VALUES, render_chart(CHART, CHART_VALUES), strict=True)
    return {
        file.stem: Rendering(file.stem, answer)
        for file, answer in answers
        if not isinstance(answer, ValuesRefused)
    }


def normalised(manifests: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """{(kind, name): object} without Helm's labels, with texts of YAML and JSON as values."""
    manifests = deepcopy(manifests)
    for manifest in manifests:
        for label in HELMS_LABELS:
            manifest["metadata"]["labels"].pop(label, None)
        texts = manifest.get("data", {})
        texts.update({key: parse_yaml(text) for key, text in texts.items()})
    return {(each["kind"], each["metadata"]["name"]): each for each in manifests}


def runbook_urls(manifests: list[Manifest]) -> dict[str, str]:
    """{alert: address of its runbook}."""
    groups = normalised(manifests)["PrometheusRule", "sidelook"]["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    return {alert["alert"]: alert["annotations"]["runbook_url"] for alert in alerts}


@pytest.mark.parametrize(
    ("number", "reason"),
    [(number, reason) for number, (*_, reason) in enumerate(REFUSALS)],
    ids=[f"{path}={str(value)[:20]!r}" for path, value, _ in REFUSALS],
)
def test_harmful_values_are_refused(number: int, reason: str, answers: Answers) -> None:
    """Helm renders nothing, reports the value, and shows no password."""
    refusal = answers[number]

    assert isinstance(refusal, ValuesRefused)
    assert reason in str(refusal)
    assert not re.search(r"word@|user@", str(refusal))


@pytest.mark.parametrize("number", range(len(RENDERED)))
def test_accepted_values_render_valid_objects(number: int, answers: Answers) -> None:
    """Values that the schema accepts make objects that Kubernetes accepts."""
    manifests = answers[len(REFUSALS) + number]

    assert not isinstance(manifests, ValuesRefused), manifests
    assert [fault for manifest in manifests for fault in schema_faults(manifest)] == []


def test_texts_stay_texts(answers: Answers) -> None:
    """A name like a number, a boolean or null is that name in each object."""
    suffixes = ("", "-executor-pod", "-prometheus", "-spark", "-dashboard")

    rendered = [each for each in answers if not isinstance(each, ValuesRefused)]

    for word, manifests in zip(WORDS, rendered[: len(WORDS)], strict=True):
        names = {manifest["metadata"]["name"] for manifest in manifests}
        assert names == {f"{word}{suffix}" for suffix in suffixes}
    pods = [pod["spec"] for each in rendered for pod in Rendering("", each).executor_pods]
    assert pods[len(WORDS)]["imagePullSecrets"] == [{"name": "123"}]
    assert pods[len(WORDS) + 2]["initContainers"][0]["startupProbe"]["failureThreshold"] == 10**6


def test_defaults_equal_the_kustomization(charts: dict[str, Rendering]) -> None:
    """The chart with default values is the base with monitoring, object by object."""
    with complete_copy() as copy:
        built = build_kustomization(copy / "everything")

    assert normalised(charts["defaults"].manifests) == normalised(built)


def test_values_reach_the_pod(charts: dict[str, Rendering]) -> None:
    """Image, resources, pull secret, startup time and the size of caches are those of the pod."""
    (pod,) = charts["production"].executor_pods

    (sidecar,) = pod["spec"]["initContainers"]
    assert sidecar["image"] == "registry.example:5000/platform/sidelook:0.1.1"
    assert sidecar["resources"] == {
        "requests": {"cpu": "2", "memory": "3Gi"},
        "limits": {"memory": "3Gi"},
    }
    assert sidecar["startupProbe"]["failureThreshold"] == 900
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "1600Mi"}


def test_disabled_parts_are_absent(charts: dict[str, Rendering]) -> None:
    """Without operators and policies only the two ConfigMaps remain, under the given name."""
    made = normalised(charts["without-operators"].manifests)

    name = "sidelook-returns"
    assert set(made) == {("ConfigMap", name), ("ConfigMap", f"{name}-executor-pod")}
    pod = made["ConfigMap", f"{name}-executor-pod"]["data"][POD_FILE]
    sources = [volume.get("configMap") for volume in pod["spec"]["volumes"]]
    assert {"name": name, "defaultMode": 0o444} in sources


def test_runbooks_have_the_configured_address(charts: dict[str, Rendering]) -> None:
    """The chart's value, and the overlay in k8s/README.md, prefix the path of each runbook."""
    folder = "https://git.example/platform/sidelook/blob/main/docs/runbooks"
    text = (CHART.parent / "README.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(patches:.*?)^```$", text, re.MULTILINE | re.DOTALL)
    with complete_copy() as copy:
        with (copy / "everything" / "kustomization.yaml").open("a") as file:
            file.write(shown)
        overlay = build_kustomization(copy / "everything")

    default, production = (charts[name].manifests for name in ("defaults", "production"))

    alerts = runbook_urls(default)
    assert alerts == {alert: f"docs/runbooks/{alert}.md" for alert in alerts}
    assert runbook_urls(production) == {alert: f"{folder}/{alert}.md" for alert in alerts}
    assert runbook_urls(overlay) == runbook_urls(production)


def test_schema_has_the_current_settings() -> None:
    """`python -m tools.k8s.chart_schema` would change nothing."""
    assert FILE.read_text() == chart_schema(FILE.read_text())


def test_schema_is_strict_and_described() -> None:
    """The schema rejects unknown keys, describes each value, and checks `config` in full."""
    schema: dict[str, Any] = json.loads(FILE.read_text())
    config = schema["properties"]["config"]
    pending, found = [("", schema)], []
    while pending:
        path, part = pending.pop()
        pending += [(f"{path}/{key}", each) for key, each in part.get("properties", {}).items()]
        if path and "description" not in part:
            found.append(path)

    assert found == []
    assert schema["additionalProperties"] is config["additionalProperties"] is False
    assert config["allOf"] == [{"$ref": "#/definitions/Settings"}]
    assert set(config["properties"]) == set(Settings.model_json_schema()["properties"])
