"""No value of the chart becomes YAML of its own, and none that would harm is rendered."""

import json
from pathlib import Path

import pytest

from service.config.settings import Settings
from tests.k8s.helm_chart import ValuesRefused, render_chart_each
from tests.k8s.manifests import CHART, Manifest
from tests.k8s.renderings import Rendering
from tests.k8s.validation import faults_of

pytestmark = pytest.mark.integration

Answers = dict[str, list[Manifest] | ValuesRefused]
FROM_EVERYWHERE = "monitoring\n        - ipBlock: {cidr: 0.0.0.0/0}"
PASSWORDS = {
    "before the host": "postgresql://user:password@host/database",
    "with a slash": "postgresql://user:pass/word@host/database",
    "as a parameter": "postgresql://user@host/database?sslmode=require&password=secret",
    "of the key": "postgresql://user@host/database?sslpassword=secret",
    "in disguise": "postgresql://user@host/database?pass%77ord=secret",
}


def prometheus(**values: object) -> Manifest:
    """Values of the policy for Prometheus."""
    return {"networkPolicy": {"prometheus": values}}


def monitor(**values: object) -> Manifest:
    """Values of the PodMonitor."""
    return {"monitoring": {"podMonitor": values}}


def runbooks(address: str) -> Manifest:
    """Values of where the alerts' pages are."""
    return {"monitoring": {"prometheusRule": {"runbookBaseUrl": address}}}


def customers(**values: object) -> Manifest:
    """Values of the example's dimension."""
    return {"config": {"dimensions": {"customers": values}}}


# {values that are refused: what Helm says about them}
REFUSALS: dict[str, tuple[Manifest, str]] = {
    "namespace with a rule": (prometheus(namespace=FROM_EVERYWHERE), "/prometheus/namespace'"),
    "namespace of other form": (prometheus(namespace="Not A Name!"), "/prometheus/namespace'"),
    "pull secret with a field": (
        {"image": {"pullSecrets": ["x\n  hostNetwork: true"]}},
        "at '/image/pullSecrets/0'",
    ),
    "pull secret with a colon": ({"image": {"pullSecrets": ["a: b"]}}, "/image/pullSecrets/0'"),
    "image of a comment": ({"image": {"repository": "#x"}}, "at '/image/repository'"),
    "image of a mapping": ({"image": {"repository": "{{x"}}, "at '/image/repository'"),
    "image of an alias": ({"image": {"repository": "*x"}}, "at '/image/repository'"),
    "image with a digest": ({"image": {"repository": "x@sha256"}}, "at '/image/repository'"),
    "image with a tag": ({"image": {"repository": "x:1"}}, "at '/image/repository'"),
    "no processor": ({"resources": {"cpu": "0.0"}}, "at '/resources/cpu'"),
    "number that Helm would round": (
        customers(default={"id": 1234567890123456789}),
        "at '/config/dimensions/customers/default/id': maximum:",
    ),
    "processor of nothing": ({"resources": {"cpu": 0}}, "at '/resources/cpu'"),
    "label's key": (
        monitor(labels={"a b": "c"}),
        "labels': additional properties 'a b' not allowed",
    ),
    "label's value": (monitor(labels={"a": "d!"}), "at '/monitoring/podMonitor/labels/a'"),
    "label of the chart": (
        monitor(labels={"app.kubernetes.io/name": "y"}),
        "at '/monitoring/podMonitor/labels/app.kubernetes.io~1name'",
    ),
    "patience beyond the interval": (
        monitor(interval="1m", scrapeTimeout="61s"),
        "monitoring.podMonitor.scrapeTimeout: 61s is longer than interval, which is 1m",
    ),
    "load beyond the start": (
        customers(cache={"mode": "full", "warmup_max_wait": "2h", "ttl": None}),
        "startupSeconds: 660 is not a minute more than warmup_max_wait of dimension customers, 2h",
    ),
    "load by default beyond the start": (
        {**customers(cache={"mode": "full"}), "startupSeconds": 659},
        "startupSeconds: 659 is not a minute more than warmup_max_wait of dimension customers, 10m",
    ),
    "wait without unit": (
        customers(cache={"mode": "full", "warmup_max_wait": 600}),
        "customers/cache/warmup_max_wait'",
    ),
    "address of runbooks without its end": (
        runbooks("https://git.example/main"),
        "at '/monitoring/prometheusRule/runbookBaseUrl'",
    ),
    "address of runbooks with a rule": (
        runbooks("https://git.example/\n  x: /"),
        "at '/monitoring/prometheusRule/runbookBaseUrl'",
    ),
    "misspelt setting": (
        customers(timeoutt="2s"),
        "at '/config/dimensions/customers': additional properties 'timeoutt' not allowed",
    ),
    "misspelt setting below": (
        customers(batch={"max_key": 5}),
        "at '/config/dimensions/customers/batch': additional properties 'max_key' not allowed",
    ),
    "span without unit": (customers(timeout="soon"), "at '/config/dimensions/customers/timeout'"),
    "count as text": (
        customers(batch={"max_keys": "many"}),
        "at '/config/dimensions/customers/batch/max_keys': got string, want integer",
    ),
    "store of no kind": (customers(source={"kind": "mysql"}), "customers/source"),
    "no key": (customers(key=None), "customers': missing property 'key'"),
    "misspelt section": (
        {"config": {"dimensionz": {}}},
        "at '/config': additional properties 'dimensionz' not allowed",
    ),
    "passwords allowed": (
        {"config": {"allow_inline_secrets": True}},
        "at '/config/allow_inline_secrets': value must be false",
    ),
    "password of a collector": (
        {"config": {"tracing": {"endpoint": "http://user:password@host:4318"}}},
        "at '/config/tracing/endpoint'",
    ),
    **{
        f"password {where}": (
            customers(source={"dsn": dsn, "dsn_file": None}),
            "config.dimensions.customers.source.dsn: holds a password; put it in dsn_file",
        )
        for where, dsn in PASSWORDS.items()
    },
}
WORDS = ("123", "true", "1e3", "null")  # text that YAML would take for something else
RENDERED: dict[str, Manifest] = {
    **{
        word: {
            **prometheus(namespace=word, podLabels={"a": word}),
            **monitor(labels={"a": word}),
            "image": {"pullSecrets": [word]},
            "name": word,
            "secretName": word,
        }
        for word in WORDS
    },
    "long waits": {
        **monitor(interval="1m", scrapeTimeout="60s"),
        **customers(cache={"mode": "full", "warmup_max_wait": "1d"}),
        "startupSeconds": 1_000_000,
    },
    "without a password": customers(
        source={"dsn": "postgresql://user@host:5432/database?sslmode=require", "dsn_file": None}
    ),
    "many sections": {
        "config": {"auth": {}, "tracing": {"endpoint": "http://host:4318"}, "limits": {}}
    },
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What Helm makes of each file of values."""
    cases = {**{name: values for name, (values, _) in REFUSALS.items()}, **RENDERED}
    folder = tmp_path_factory.mktemp("values")
    files = [folder / f"{number}.yaml" for number in range(len(cases))]
    for file, values in zip(files, cases.values(), strict=True):
        file.write_text(json.dumps(values))
    return dict(zip(cases, render_chart_each(CHART, files), strict=True))


def rendered(answers: Answers, case: str) -> Rendering:
    """The objects that Helm made."""
    answer = answers[case]
    assert not isinstance(answer, ValuesRefused), str(answer)
    return Rendering(case, answer)


@pytest.mark.parametrize("case", REFUSALS)
def test_harmful_value_is_refused(case: str, answers: Answers) -> None:
    """Nothing is rendered, Helm says which value is wrong, and shows no password."""
    answer = answers[case]

    assert isinstance(answer, ValuesRefused)
    assert REFUSALS[case][1] in str(answer)
    assert "word@host" not in str(answer)
    assert "user@host" not in str(answer)


@pytest.mark.parametrize("case", RENDERED)
def test_rendered_values_are_valid(case: str, answers: Answers) -> None:
    """Whatever the schema lets in makes objects that Kubernetes takes."""
    made = rendered(answers, case)

    assert [fault for manifest in made.manifests for fault in faults_of(manifest)] == []


@pytest.mark.parametrize("word", WORDS)
def test_text_stays_text(word: str, answers: Answers) -> None:
    """A name that looks like a number, a boolean or nothing is that name in each object."""
    made = rendered(answers, word)

    names = {manifest["metadata"]["name"] for manifest in made.manifests}
    suffixes = ("", "-executor-pod", "-prometheus", "-spark", "-dashboard")
    assert names == {f"{word}{suffix}" for suffix in suffixes}
    (pod,) = made.executor_pods
    assert pod["spec"]["imagePullSecrets"] == [{"name": word}]


def test_long_start_stays_a_number(answers: Answers) -> None:
    """A million seconds are not written as Helm would write a number of that size."""
    (pod,) = rendered(answers, "long waits").executor_pods

    (sidecar,) = pod["spec"]["initContainers"]
    assert sidecar["startupProbe"]["failureThreshold"] == 1_000_000


def test_sections_are_the_configurations() -> None:
    """Below `config` the chart takes what the sidecar takes, and no other section."""
    schema = json.loads((Path(CHART) / "values.schema.json").read_text())
    config = schema["properties"]["config"]

    assert set(config["properties"]) == set(Settings.model_json_schema()["properties"])
    assert config["additionalProperties"] is False
