"""The examples run the pod that the template describes, submitted as it must be."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.demo.embedded_kafka.stub_programs import path_with, put_program
from tests.k8s.manifests import (
    EXAMPLES,
    JOBS,
    POD_TEMPLATE,
    ROOT,
    SPARK_SETTINGS,
    Manifest,
    read_manifest,
    read_spark_settings,
)
from tests.k8s.validation import template_of

SUBMIT = EXAMPLES / "spark-submit.sh"
TEMPLATE_FILE = "spark.kubernetes.executor.podTemplateFile"
SETTINGS = {
    "KUBERNETES_API": "https://api.example:6443",
    "NAMESPACE": "spark",
    "IMAGE": "job:1.0.0",
}


def submit(folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the example with a spark-submit that prints its folder and its arguments, one a line."""
    put_program(folder, "spark-submit", 'pwd; printf "%s\\n" "$@"')
    environ = {**os.environ, **settings, "PATH": path_with(folder)}
    command = [str(SUBMIT), "local:///opt/job.py"]
    return subprocess.run(
        command, cwd=folder, env=environ, check=False, capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_job_has_the_templates_pod(path: Path) -> None:
    """An operator's job says the same of its executors as the file that spark-submit reads."""
    shipped = read_manifest(POD_TEMPLATE)

    template = template_of(read_manifest(path))

    assert template["spec"] == shipped["spec"]
    assert template["metadata"] == {"labels": shipped["metadata"]["labels"]}


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_job_has_the_settings_of_spark(path: Path) -> None:
    """What spark.conf sets is set in the job, but for the file, which the operator writes."""
    wanted = read_spark_settings(SPARK_SETTINGS)
    del wanted[TEMPLATE_FILE]

    settings: Manifest = read_manifest(path)["spec"]["sparkConf"]

    assert {key: settings.get(key) for key in wanted} == wanted


def test_submit_passes_all_on(tmp_path: Path) -> None:
    """spark-submit runs in the checkout, so that the paths in its settings are found."""
    folder, *arguments = submit(tmp_path, SETTINGS).stdout.splitlines()

    named = [each for each in arguments if each.startswith(TEMPLATE_FILE)]
    assert folder == str(ROOT)
    assert arguments[:2] == ["--master", "k8s://https://api.example:6443"]
    assert arguments[-1] == "local:///opt/job.py"
    assert named == [f"{TEMPLATE_FILE}={POD_TEMPLATE.relative_to(ROOT)}"]
    assert {"spark.kubernetes.namespace=spark", "k8s/spark.conf"} <= set(arguments)


def test_submit_takes_another_template(tmp_path: Path) -> None:
    """An overlay's template is named by a variable, and wins over spark.conf."""
    other = "k8s/overlays/production/executor-pod-template.yaml"

    told = submit(tmp_path, {**SETTINGS, "POD_TEMPLATE": other}).stdout

    assert f"{TEMPLATE_FILE}={other}" in told
    assert (ROOT / other).is_file()


@pytest.mark.parametrize("missing", SETTINGS)
def test_submit_says_what_is_missing(tmp_path: Path, missing: str) -> None:
    """Without one of its settings nothing is submitted."""
    ended = submit(tmp_path, {**SETTINGS, missing: ""})

    assert ended.returncode != 0
    assert missing in ended.stderr
    assert ended.stdout == ""
