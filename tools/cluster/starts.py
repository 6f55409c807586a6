"""Starts and stops of executors: without a database, with a full table, and their order."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.cluster.cluster import DRIVERS, EXECUTORS, IN_NAMESPACE, Cluster
from tools.cluster.database import Database
from tools.cluster.faults import Faults, sidecar_status
from tools.cluster.images import NEWEST_SPARK, OLDEST_SPARK
from tools.cluster.spark import PATIENCE_S, RECORDS, Job, SparkJobs, name_of
from tools.processes.steps import demand, step
from tools.processes.until import until

_PARTIAL = "cache: { max_bytes: 256MiB, ttl: 10m, negative_ttl: 5s }"
_FULL = "cache: { mode: full, max_bytes: 256MiB }"
_WAITS = "Startup probe failed: HTTP probe failed with statuscode: 503"
_EVENT = re.compile(r"(?P<date>\S+) (?P<time>\S+) .* /tasks/(?P<topic>\w+) (?P<event>\{.*\})")
_LONG_S = "600"  # a job whose executors stay


@dataclass(frozen=True, slots=True)
class Starts:
    """Jobs of the oldest and the newest Spark, in client and in cluster mode."""

    cluster: Cluster
    jobs: SparkJobs
    database: Database
    faults: Faults

    def play(self) -> None:
        """Run and print all steps; raises StepFailed at the first failure."""
        self._without_database()
        with step(f"job: Spark {OLDEST_SPARK} in client mode, and all rows are right"):
            self.jobs.remove()
            self.jobs.start_client(Job(spark=OLDEST_SPARK))
            self.jobs.demand_result()
        self._full_table()

    def _without_database(self) -> None:
        with step(f"job: Spark {OLDEST_SPARK} in cluster mode starts without a database"):
            self.jobs.remove()
            self.database.stop()
            self.jobs.submit_inside(Job(spark=OLDEST_SPARK))
            until(lambda: len(self._started()) == 2, within_s=PATIENCE_S)
            demand(self.jobs.result() is None, "it has a result without a database")
            ready = [name_of(each) for each in self._started() if sidecar_status(each)["ready"]]
            demand(not ready, f"ready without a database: {ready}")
        with step("job: the database starts, and all rows are right"):
            self.database.start()
            self.jobs.demand_result()

    def _full_table(self) -> None:
        self.jobs.remove()
        self.faults.configure(_PARTIAL, _FULL)
        with self.cluster.recording("ctr", "--namespace=k8s.io", "events") as events:
            with step("full table: executors wait for its load, as their startup probe says"):
                self._start_at_locked_table()
            with step(f"job: Spark {NEWEST_SPARK} in client mode, and all rows are right"):
                self.jobs.demand_result(ends=False)
            with step("order: each sidecar starts before its executor, and ends after it"):
                self._demand_order(events)
            with step("driver deleted: Kubernetes deletes its executors"):
                (driver,) = self.cluster.pods(DRIVERS)
                self.faults.delete(name_of(driver))
                until(lambda: not self.cluster.pods(EXECUTORS), within_s=PATIENCE_S)
        self.faults.configure(_FULL, _PARTIAL)

    def _start_at_locked_table(self) -> None:
        with self.database.locked_table():
            self.jobs.start_client(Job(spark=NEWEST_SPARK, arguments=(str(RECORDS), _LONG_S)))
            until(lambda: len(self._with_event(_WAITS)) == 2, within_s=PATIENCE_S)
            demand(not self._started(), "an executor started before the table was loaded")

    def _with_event(self, message: str) -> set[str]:
        events = self.cluster.get("events", *IN_NAMESPACE)["items"]
        named = {each["involvedObject"]["name"] for each in events if message in each["message"]}
        return named & {name_of(each) for each in self.cluster.pods(EXECUTORS)}

    def _demand_order(self, events: Path) -> None:
        pods = self.cluster.pods(EXECUTORS)
        for pod in pods:
            sidecar, executor = _containers(pod)
            first, then = (_moment(events, "start", each) for each in (sidecar, executor))
            demand(bool(first) and first < then, f"{name_of(pod)}: {first}, then {then}")
        sidecar, executor = _containers(pods[0])
        self.faults.remove_executor(self.faults.delete, name_of(pods[0]))
        until(lambda: _moment(events, "exit", sidecar), within_s=PATIENCE_S)
        first, then = (_moment(events, "exit", each) for each in (executor, sidecar))
        demand(bool(first) and first < then, f"exit of the executor {first}, of the sidecar {then}")

    def _started(self) -> list[dict[str, Any]]:
        """Pods whose executor runs."""
        return [
            each
            for each in self.cluster.pods(EXECUTORS)
            if any(status["started"] for status in each["status"].get("containerStatuses", []))
        ]


def _containers(pod: dict[str, Any]) -> tuple[str, str]:
    """The ids of sidecar and executor."""
    (executor,) = pod["status"]["containerStatuses"]
    sidecar, of_executor = (
        each["containerID"].removeprefix("containerd://")
        for each in (sidecar_status(pod), executor)
    )
    return sidecar, of_executor


def _moment(events: Path, what: str, container: str) -> str:
    """When a container started or exited, as text that can be compared; empty before it."""
    for line in events.read_text().splitlines():
        found = _EVENT.fullmatch(line)
        if found is None or found["topic"] != what:
            continue
        event = json.loads(found["event"])
        # Other processes of the container have other ids.
        if event.get("id", container) == event["container_id"] == container:
            return f"{found['date']} {found['time']:0<18}"  # last zeros of a fraction are missing
    return ""
