"""Life of executors with the sidecar in the cluster, step by step.

Runs in the namespaces that `__main__` creates.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.certificates import API_SERVER
from tools.cluster.cluster import IN_NAMESPACE, NAMESPACE, Cluster, KubectlFailed
from tools.cluster.database import Database, running_database
from tools.cluster.faults import Faults
from tools.cluster.images import SPARK_VERSIONS, Archive, job_name
from tools.image.image import ROOT
from tools.processes.until import NotSo, until
from tools.rehearsal.steps import StepFailed, demand, step

RECORDS = 200_000
BATCH_RECORDS, PARTITIONS, LEAST_RECORDS = 20_000, 6, 1_000_000  # of the stream
PATIENCE_S = 120.0
# Of what is printed after a failure.
_WARNINGS, _ERRORS, _LONGEST = 4, 4, 600  # the last one in characters of a line
_ERROR = re.compile(r"(Caused by: )?(\w+\.)+[A-Z]\w+: ")
_SMALL = {  # two processors serve everything
    "spark.kubernetes.driver.request.cores": "100m",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.executor.cores": "1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
}
_GROWING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.executor.maxNumFailures": "100",  # the faults
}


@dataclass(frozen=True, slots=True)
class Life:
    """A cluster with a database, and the manifests in a folder."""

    cluster: Cluster
    images: Iterable[Archive]
    manifests: Path

    def play(self, *, struck: bool) -> None:
        """Run and print all steps; raises StepFailed at the first failure.

        `struck` runs a stream under faults after the job.
        """
        with ExitStack() as stack:
            with step("API server: etcd and Kubernetes respond"):
                stack.callback(self.cluster.stop)
                self.cluster.start_api_server()
            with step("node: containerd, kubelet, proxy and DNS run, and the node is ready"):
                self.cluster.start_node(self.images)
            with step("database: PostgreSQL responds at the node's address"):
                database = stack.enter_context(running_database(self.cluster.folder / "postgres"))
            with step("install: namespace, secret, and the base of the manifests"):
                self.install(database)
            with step("job: Spark in cluster mode, and all rows are right"):
                self.run_job()
            if struck:
                self.run_stream(Faults(self.cluster, database))

    def install(self, database: Database) -> None:
        """What the page of the manifests says; Pod Security is `baseline`."""
        kubectl = self.cluster.kubectl
        kubectl("create", "namespace", NAMESPACE)
        level = "pod-security.kubernetes.io/enforce=baseline"
        kubectl("label", "namespace", NAMESPACE, level)
        files = [f"--from-literal={name}={text}" for name, text in database.secret.items()]
        kubectl("create", "secret", "generic", "sidelook", *IN_NAMESPACE, *files)
        kubectl("apply", *IN_NAMESPACE, "--kustomize", str(self.manifests))
        kubectl("create", "serviceaccount", "spark", *IN_NAMESPACE)
        account = f"--serviceaccount={NAMESPACE}:spark"
        kubectl("create", "rolebinding", "spark", "--clusterrole=edit", account, *IN_NAMESPACE)

    def run_job(self) -> None:
        """Submit a job in cluster mode, and demand its result."""
        spark = SPARK_VERSIONS[0]
        once = {"spark.task.maxFailures": "1"}  # an error of the manifests does not pass
        submitted = self.submit(spark, "/opt/enrich_checked.py", str(RECORDS), "5", settings=once)
        try:
            until(lambda: submitted.poll() is not None or self.result(), within_s=PATIENCE_S)
        finally:
            result = self.result()
            demand(result, f"no result: {self.reasons()}")
        right = {"rows": RECORDS, "distinct": RECORDS, "wrong": 0}
        demand(result == right, f"{result} and not {right}")
        demand(submitted.wait(timeout=PATIENCE_S) == 0, "spark-submit failed")

    def run_stream(self, faults: Faults) -> None:
        """A stream that goes on under every fault, and whose output is complete and right."""
        self.cluster.kubectl("delete", "pods", *IN_NAMESPACE, "--all")
        with step("stream: its first batch is complete"):
            faults.configure("ttl: 10m", "ttl: 2s")  # the database is read all the time
            arguments = ("/opt/stream_checked.py", str(BATCH_RECORDS), str(PARTITIONS))
            submitted = self.submit(SPARK_VERSIONS[0], *arguments, settings=_GROWING)
            self._await_batches(1)
        with step("stream: three executors run, of one to three that are permitted"):
            until(lambda: len(faults.executors()) == 3, within_s=PATIENCE_S)
        count = 0
        for count, (name, strike) in enumerate(faults.all(), start=1):
            with step(f"fault {count}: {name}"):
                strike()
                self._await_batches(2)
        with step("stream: it ends, and its output is complete and right"):
            while len(self.batches()) * BATCH_RECORDS < LEAST_RECORDS:
                self._await_batches(2)
            (driver,) = self.cluster.get("pods", *IN_NAMESPACE, "--selector=spark-role=driver")[
                "items"
            ]
            end = ("exec", *IN_NAMESPACE, driver["metadata"]["name"], "--", "touch", "/tmp/end")
            self.cluster.kubectl(*end)
            demand(submitted.wait(timeout=PATIENCE_S) == 0, f"spark-submit failed{self.reasons()}")
            batches = self.batches()
            self._demand_complete(batches, count)

    def _demand_complete(self, batches: dict[int, dict[str, int]], faults: int) -> None:
        expected = len(batches) * BATCH_RECORDS
        distinct = sum(each["distinct"] for each in batches.values())
        rows = sum(each["rows"] for each in batches.values())
        wrong = sum(each["wrong"] for each in batches.values())
        lost, doubled = expected - distinct, rows - distinct
        found = f"lost = {lost}, doubled = {doubled}, wrong = {wrong}"
        print(f"{found} over {rows:,} records in {len(batches)} batches and {faults} faults")
        demand(lost == doubled == wrong == 0, found)
        demand([*batches] == [*range(len(batches))], f"not every batch was printed: {[*batches]}")

    def batches(self) -> dict[int, dict[str, int]]:
        """The counts of each batch of the stream, by its number."""
        lines = [line for line in self.driver_log() if line.startswith("BATCH ")]
        return {each["batch"]: each for each in map(json.loads, (line[6:] for line in lines))}

    def _await_batches(self, more: int) -> None:
        """Until that many more batches are complete."""
        former = len(self.batches())
        try:
            until(lambda: len(self.batches()) >= former + more, within_s=PATIENCE_S)
        except NotSo as error:
            raise StepFailed(f"the stream stands still: {self.reasons()}") from error

    def submit(
        self, spark: str, program: str, *arguments: str, settings: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Run `spark-submit.sh` of the examples in this checkout."""
        environ = self.cluster.environ
        environ |= {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]]),
            "KUBERNETES_API": API_SERVER,
            "NAMESPACE": NAMESPACE,
            "IMAGE": job_name(spark),
            "POD_TEMPLATE": str(self.manifests / "executor-pod" / "executor-pod-template.yaml"),
        }
        chosen = _SMALL | {"spark.executor.instances": "2"} | (settings or {})
        options = [word for name, text in chosen.items() for word in ("--conf", f"{name}={text}")]
        script = str(ROOT / "k8s" / "examples" / "spark-submit.sh")
        with (self.cluster.folder / "logs" / "spark-submit").open("ab") as log:
            return subprocess.Popen(
                ["sh", script, *options, f"local://{program}", *arguments],
                env=environ,
                stdout=log,
                stderr=log,
            )

    def result(self) -> dict[str, int] | None:
        """What the driver's last job has printed; None so far."""
        lines = [line for line in self.driver_log() if line.startswith("RESULT ")]
        if not lines:
            return None
        counts: dict[str, int] = json.loads(lines[-1].removeprefix("RESULT "))
        return counts

    def driver_log(self) -> list[str]:
        """The lines of the drivers' logs; none before a driver has started."""
        return self._log("driver")

    def sidecar_log(self) -> list[str]:
        """The lines of the sidecars' logs; none before one has started."""
        return self._log("executor", "--container=sidelook")

    def _log(self, role: str, *options: str) -> list[str]:
        selector = (f"--selector=spark-role={role}", "--tail=-1", *options)
        try:
            return self.cluster.kubectl("logs", *IN_NAMESPACE, *selector).splitlines()
        except KubectlFailed:
            return []

    def reasons(self) -> str:
        """Warnings of the cluster's events, errors in the driver's log, and ends of other logs."""
        events = self.cluster.get("events", *IN_NAMESPACE, "--field-selector=type=Warning")
        warnings = {
            f"{each['reason']}: {each['message']}": _times(each) for each in events["items"]
        }
        common = sorted(warnings, key=lambda text: -warnings[text])[:_WARNINGS]
        errors = dict.fromkeys(filter(_ERROR.match, self.driver_log()))
        submitted = self.cluster.log("spark-submit").splitlines()
        lines = [*(f"{warnings[each]} times {each}" for each in common), *[*errors][:_ERRORS]]
        lines += [*self.sidecar_log()[-1:], *submitted[-1:]]
        return "".join(f"\n    {each[:_LONGEST]}" for each in lines)


def _times(event: dict[str, Any]) -> int:
    return int(event.get("count") or event.get("series", {}).get("count") or 1)
