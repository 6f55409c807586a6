"""The examples submit the pod of the template with the settings of spark.conf."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.demo.embedded_kafka.stub_programs import path_with, put_program
from tools.k8s.manifests import (
    EXAMPLES,
    JOBS,
    POD_TEMPLATE,
    ROOT,
    SPARK_SETTINGS,
    Manifest,
    read_manifest,
    read_spark_settings,
    template_of,
)

SUBMIT = EXAMPLES / "spark-submit.sh"
TEMPLATE_FILE = "spark.kubernetes.executor.podTemplateFile"
TEMPLATE = str(POD_TEMPLATE.relative_to(ROOT))
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


def test_spark_settings_name_the_template() -> None:
    """spark.conf names the shipped template and Spark's container, and sets the grace period."""
    assert read_spark_settings(SPARK_SETTINGS) == {
        TEMPLATE_FILE: TEMPLATE,
        "spark.kubernetes.executor.podTemplateContainerName": "spark-kubernetes-executor",
        "spark.kubernetes.executor.terminationGracePeriodSeconds": "60s",
    }


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_job_equals_template_and_settings(path: Path) -> None:
    """A job of either operator has the pod of the template, and the settings but for its file."""
    shipped = read_manifest(POD_TEMPLATE)
    settings = read_spark_settings(SPARK_SETTINGS)
    del settings[TEMPLATE_FILE]

    job = read_manifest(path)

    template, configured = template_of(job), dict[str, Manifest](job["spec"]["sparkConf"])
    assert template["spec"] == shipped["spec"]
    assert template["metadata"] == {"labels": shipped["metadata"]["labels"]}
    assert {key: configured.get(key) for key in settings} == settings


def test_submit_passes_all_settings(tmp_path: Path) -> None:
    """spark-submit runs in the checkout, where the paths of its settings exist."""
    folder, *arguments = submit(tmp_path, SETTINGS).stdout.splitlines()

    templates = [each for each in arguments if each.startswith(TEMPLATE_FILE)]
    assert folder == str(ROOT)
    assert arguments[:2] == ["--master", "k8s://https://api.example:6443"]
    assert arguments[-1] == "local:///opt/job.py"
    assert templates == [f"{TEMPLATE_FILE}={TEMPLATE}"]
    assert {"spark.kubernetes.namespace=spark", "k8s/spark.conf"} <= set(arguments)


@pytest.mark.parametrize("missing", SETTINGS)
def test_submit_requires_each_setting(tmp_path: Path, missing: str) -> None:
    """Without one of its settings the example submits nothing, and names the setting."""
    ended = submit(tmp_path, {**SETTINGS, missing: ""})

    assert ended.returncode != 0
    assert missing in ended.stderr
    assert ended.stdout == ""
