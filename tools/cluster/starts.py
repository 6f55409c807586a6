"""Starts of executors without a database and with a full table, and the end of a driver."""

from dataclasses import dataclass
from typing import Any

from tools.cluster.cluster import DRIVERS, EXECUTORS, IN_NAMESPACE, Cluster
from tools.cluster.database import Database
from tools.cluster.faults import Faults, sidecar_status
from tools.cluster.images import NEWEST_SPARK, OLDEST_SPARK
from tools.cluster.spark import PATIENCE_S, RECORDS, Job, SparkJobs, name_of
from tools.processes.steps import demand, step
from tools.processes.until import soon, until

_PARTIAL = "cache: { max_bytes: 256MiB, ttl: 10m, negative_ttl: 5s }"
_FULL = "cache: { mode: full, max_bytes: 256MiB }"
_WAITS = "Startup probe failed: HTTP probe failed with statuscode: 503"
_LONG_S = "600"  # a job whose executors stay


@dataclass(frozen=True, slots=True)
class Starts:
    """Jobs of the oldest and the newest Spark, in client mode."""

    cluster: Cluster
    jobs: SparkJobs
    database: Database
    faults: Faults

    def play(self) -> None:
        """Run and print all steps; raises StepFailed at the first failure."""
        with step(f"job: Spark {OLDEST_SPARK} in client mode starts without a database"):
            self.jobs.remove()
            self.database.stop()
            self.jobs.start_client(Job(spark=OLDEST_SPARK))
            is_in_time = soon(lambda: len(self._started()) == 2, within_s=PATIENCE_S)
            demand(is_in_time, f"not two executors; reasons: {self.jobs.reasons()}")
            demand(self.jobs.result() is None, "it has a result without a database")
            ready = [name_of(each) for each in self._started() if sidecar_status(each)["ready"]]
            demand(not ready, f"ready without a database: {ready}")
        with step("job: the database starts, and all rows are right"):
            self.database.start()
            self.jobs.demand_result()
        self._full_table()

    def _full_table(self) -> None:
        self.jobs.remove()
        self.faults.configure(_PARTIAL, _FULL)
        name = "full table: executors wait for its load, as their startup probe says"
        with step(name), self.database.locked_table():
            self.jobs.start_client(Job(spark=NEWEST_SPARK, arguments=(str(RECORDS), _LONG_S)))
            until(lambda: len(self._with_event(_WAITS)) == 2, within_s=PATIENCE_S)
            demand(not self._started(), "an executor started before the table was loaded")
        with step(f"job: Spark {NEWEST_SPARK} in client mode, and all rows are right"):
            self.jobs.demand_result(ends=False)
        with step("driver deleted: Kubernetes deletes its executors"):
            (driver,) = self.cluster.pods(DRIVERS)
            self.faults.delete(name_of(driver))
            until(lambda: not self.cluster.pods(EXECUTORS), within_s=PATIENCE_S)
        self.faults.configure(_FULL, _PARTIAL)

    def _with_event(self, message: str) -> set[str]:
        events = self.cluster.get("events", *IN_NAMESPACE)["items"]
        named = {each["involvedObject"]["name"] for each in events if message in each["message"]}
        return named & {name_of(each) for each in self.cluster.pods(EXECUTORS)}

    def _started(self) -> list[dict[str, Any]]:
        """Pods whose executor runs."""
        return [
            each
            for each in self.cluster.pods(EXECUTORS)
            if any(status["started"] for status in each["status"].get("containerStatuses", []))
        ]
