"""Spark jobs in the cluster: their submission, their logs, and why one does not succeed."""

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.cluster.cluster import (
    API_SERVER,
    DRIVERS,
    EXECUTORS,
    IN_NAMESPACE,
    NAMESPACE,
    Cluster,
    KubectlFailed,
)
from tools.cluster.images import job_name
from tools.cluster.machine import run
from tools.k8s.manifests import EXAMPLES, read_manifest
from tools.processes.steps import demand
from tools.processes.until import until

RECORDS = 200_000
CHECKED = "/opt/enrich_checked.py"
PATIENCE_S = 180.0
ONCE = {"spark.task.maxFailures": "1"}  # an error does not pass by a retry
# Of what is printed after a failure.
_WARNINGS, _ERRORS, _LONGEST = 4, 4, 600  # the last one in characters of a line
_ERROR = re.compile(r"(Caused by: )?(\w+\.)+[A-Z]\w+: ")
SMALL = {  # two processors serve everything
    "spark.kubernetes.submission.waitAppCompletion": "false",
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.executor.cores": "1",
    "spark.executor.instances": "2",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
}
_CLIENT = EXAMPLES / "client-mode-driver.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A program of `jobs` with its arguments, the version of Spark, and settings."""

    spark: str
    program: str = CHECKED
    arguments: tuple[str, ...] = (str(RECORDS), "5")
    settings: Mapping[str, str] = field(default_factory=lambda: ONCE)

    @property
    def options(self) -> list[str]:
        """The settings as options of spark-submit."""
        return [f"--conf={name}={text}" for name, text in {**SMALL, **self.settings}.items()]

    @property
    def command(self) -> list[str]:
        """The program with its arguments."""
        return [f"local://{self.program}", *self.arguments]


@dataclass(frozen=True, slots=True)
class SparkJobs:
    """Jobs in the namespace, one at a time."""

    cluster: Cluster
    checkout: Path  # with k8s/

    @property
    def environ(self) -> dict[str, str]:
        """Variables with which the newest spark-submit is called on the node."""
        environ = self.cluster.environ
        path = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])
        return environ | {"PATH": path, "KUBERNETES_API": API_SERVER, "NAMESPACE": NAMESPACE}

    def submit(self, job: Job) -> None:
        """Run `spark-submit.sh` of the examples on the node, in cluster mode."""
        script = str(self.checkout / "k8s" / "examples" / "spark-submit.sh")
        environ = self.environ | {"IMAGE": job_name(job.spark)}
        run("sh", script, *job.options, *job.command, environ=environ)

    def start_client(self, job: Job) -> None:
        """Start the driver of the examples: client mode in a pod."""
        pod, image = read_manifest(_CLIENT), job_name(job.spark)
        pod["metadata"]["name"] = "client"
        (container,) = pod["spec"]["containers"]
        container["image"] = image
        container["resources"]["requests"]["cpu"] = "100m"
        options = [each for each in container["args"] if each.startswith("--")]
        shown = [each for each in options if not each.startswith("--conf=spark.kubernetes.cont")]
        own = f"--conf=spark.kubernetes.container.image={image}"
        container["args"] = [*shown, own, *job.options, *job.command]
        file = self.cluster.folder / "pod.json"
        file.write_text(json.dumps(pod))
        self.cluster.kubectl("create", *IN_NAMESPACE, f"--filename={file}")

    def demand_result(self, *, ends: bool = True) -> None:
        """Wait for the result, demand that all rows are right, and that the driver succeeds."""
        try:
            until(lambda: self.result() or self._phase() == "Failed", within_s=PATIENCE_S)
        finally:
            result = self.result()
            demand(result, f"no result within {PATIENCE_S:g} s; reasons: {self.reasons()}")
        right = {"rows": RECORDS, "distinct": RECORDS, "wrong": 0}
        demand(result == right, f"{result} and not {right}")
        if ends:
            until(self.has_ended, within_s=PATIENCE_S)

    def has_ended(self) -> bool:
        """Whether the driver has succeeded; raises StepFailed if it has failed."""
        demand(self._phase() != "Failed", f"the driver failed: {self.reasons()}")
        return self._phase() == "Succeeded"

    def result(self) -> dict[str, int] | None:
        """What the driver has printed; None so far."""
        lines = [line for line in self.driver_log() if line.startswith("RESULT ")]
        if not lines:
            return None
        counts: dict[str, int] = json.loads(lines[-1].removeprefix("RESULT "))
        return counts

    def batches(self) -> dict[int, dict[str, int]]:
        """The counts of each batch of the stream, by its number."""
        lines = [line for line in self.driver_log() if line.startswith("BATCH ")]
        return {each["batch"]: each for each in map(json.loads, (line[6:] for line in lines))}

    def in_driver(self, *command: str) -> str:
        """The output of a command in the driver's container."""
        (driver,) = self.cluster.pods(DRIVERS)
        return self.cluster.kubectl("exec", *IN_NAMESPACE, name_of(driver), "--", *command)

    def remove(self) -> None:
        """Delete all pods, and wait for their end."""
        self.cluster.kubectl("delete", "pods", *IN_NAMESPACE, "--all", "--timeout=80s")

    def driver_log(self) -> list[str]:
        """The lines of the driver's log; none before it has started."""
        return self._log(DRIVERS)

    def reasons(self) -> str:
        """Warnings of the cluster's events, errors in the driver's log, and ends of other logs."""
        events = self.cluster.get("events", *IN_NAMESPACE, "--field-selector=type=Warning")
        warnings = {
            f"{each['reason']}: {each['message']}": _times(each) for each in events["items"]
        }
        common = sorted(warnings, key=lambda text: -warnings[text])[:_WARNINGS]
        errors = dict.fromkeys(_plain(each) for each in self.driver_log() if _ERROR.match(each))
        lines = [*[*errors][:_ERRORS], *(f"{warnings[each]} times {each}" for each in common)]
        lines += self._log(EXECUTORS, "--container=sidelook")[-1:]
        return "".join(f"\n    {each[:_LONGEST]}" for each in lines)

    def _phase(self) -> str:
        return next((each["status"]["phase"] for each in self.cluster.pods(DRIVERS)), "")

    def _log(self, selector: str, *options: str) -> list[str]:
        try:
            chosen = (selector, "--tail=-1", *options)
            return self.cluster.kubectl("logs", *IN_NAMESPACE, *chosen).splitlines()
        except KubectlFailed:
            return []


def name_of(pod: dict[str, Any]) -> str:
    """The name of a pod."""
    name: str = pod["metadata"]["name"]
    return name


def _plain(error: str) -> str:
    """An error without what differs between executors, and without the object as text."""
    plain = re.sub(r"exec-\d+", "exec-N", error.removeprefix("Caused by: "))
    return plain.partition(" Received status:")[0]


def _times(event: dict[str, Any]) -> int:
    return int(event.get("count") or event.get("series", {}).get("count") or 1)
