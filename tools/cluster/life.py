"""Life of executors with the sidecar in the cluster, step by step.

Runs in the namespaces that `__main__` creates.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools.cluster.cluster import API_SERVER, NAMESPACE, Cluster
from tools.cluster.database import Database, running_database
from tools.cluster.faults import Faults
from tools.cluster.images import NEWEST_SPARK, job_name
from tools.cluster.page import CommandFailed, Reader, checkout
from tools.cluster.spark import CHECKED, ONCE, PATIENCE_S, RECORDS, SMALL, Job, SparkJobs
from tools.cluster.starts import Starts
from tools.processes.steps import StepFailed, demand, step
from tools.processes.until import NotSo, until

BATCH_RECORDS, PARTITIONS, LEAST_RECORDS = 20_000, 6, 1_000_000  # of the stream
_HOLD_S = "15"  # of the job on the page, in which a reader looks at its sidecars
_GROWING = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.executor.instances": "1",
    "spark.executor.maxNumFailures": "100",  # the faults
    "spark.task.maxFailures": "1000",
}


@dataclass(frozen=True, slots=True)
class Life:
    """A cluster with a database, archives of images, and the manifests in a folder."""

    cluster: Cluster
    images: Sequence[Path]
    manifests: Path  # the base

    def play(self, *, struck: bool) -> None:
        """Run and print all steps; raises StepFailed at the first failure.

        `struck` runs other jobs, and a stream under faults, after the job of the page.
        """
        with ExitStack() as stack:
            with step("API server: etcd and Kubernetes respond"):
                stack.callback(self.cluster.stop)
                self.cluster.start_api_server()
            with step("node: containerd, kubelet, proxy and DNS run, and the node is ready"):
                self.cluster.start_node(self.images)
            with step("database: PostgreSQL responds at the node's address"):
                database = stack.enter_context(running_database(self.cluster.folder / "postgres"))
            jobs = SparkJobs(self.cluster, checkout(self.cluster.folder, self.manifests))
            self._follow_the_page(jobs, database)
            if struck:
                faults = Faults(self.cluster, database)
                Starts(self.cluster, jobs, database, faults).play()
                Stream(jobs, faults).play()

    def _follow_the_page(self, jobs: SparkJobs, database: Database) -> None:
        settings = jobs.checkout / "k8s" / "spark.conf"
        with settings.open("a") as file:
            file.writelines(f"{name} {text}\n" for name, text in {**SMALL, **ONCE}.items())
        own = {
            "postgresql://user:password@host/database": database.dsn,
            "https://kubernetes.example:6443": API_SERVER,
            "registry.example/jobs/enrich:1.0.0": job_name(NEWEST_SPARK),
            "local:///opt/spark/work-dir/enrich.py": f"local://{CHECKED}",
            "s3a://bucket/events s3a://bucket/enriched": f"{RECORDS} {_HOLD_S}",
        }
        reader = Reader(jobs.checkout, jobs.environ, own)
        with step("install: as k8s/README.md says; then Pod Security `baseline` is enforced"):
            _follow(reader, "Install")
            level = "pod-security.kubernetes.io/enforce=baseline"
            self.cluster.kubectl("label", "namespace", NAMESPACE, level)
        with step(f"job: Spark {NEWEST_SPARK} in cluster mode, submitted as k8s/README.md says"):
            _follow(reader, "Run a job")
            jobs.demand_result(ends=False)
        with step("sidecar: `status` and `doctor` succeed, called as k8s/README.md says"):
            shown = _follow(reader, "Look at a sidecar")
            demand("customers" in shown, shown)


def _follow(reader: Reader, section: str) -> str:
    try:
        return reader.follow(section)
    except CommandFailed as error:
        raise StepFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream that goes on under every fault, and whose output is complete and right."""

    jobs: SparkJobs
    faults: Faults

    def play(self) -> None:
        """Run and print all steps; raises StepFailed at the first failure."""
        self.jobs.remove()
        self._begin()
        count = 0
        for count, (name, strike) in enumerate(self.faults.all(), start=1):
            with step(f"fault {count}: {name}"):
                strike()
                self._await_batches(2)
        with step("stream: it ends, and its output is complete and right"):
            while len(self.jobs.batches()) * BATCH_RECORDS < LEAST_RECORDS:
                self._await_batches(2)
            self.jobs.in_driver("touch", "/tmp/end")
            until(self.jobs.has_ended, within_s=PATIENCE_S)
            self._demand_complete(self.jobs.batches(), count)

    def _begin(self) -> None:
        with step("stream: one executor runs, of one to three that are permitted"):
            self.faults.configure("ttl: 10m", "ttl: 2s")  # the database is read all the time
            arguments = (str(BATCH_RECORDS), str(PARTITIONS))
            program = "/opt/stream_checked.py"
            job = Job(spark=NEWEST_SPARK, program=program, arguments=arguments, settings=_GROWING)
            self.jobs.submit(job)
            until(self.faults.executors, within_s=PATIENCE_S)
            demand(len(self.faults.executors()) == 1, "there are more")
        with step("stream: its first batch is complete"):
            self.jobs.in_driver("touch", "/tmp/begin")
            self._await_batches(1)
        with step("stream: three executors run"):
            until(lambda: len(self.faults.executors()) == 3, within_s=PATIENCE_S)

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

    def _await_batches(self, more: int) -> None:
        """Until that many more batches are complete."""
        former = len(self.jobs.batches())
        try:
            until(lambda: len(self.jobs.batches()) >= former + more, within_s=PATIENCE_S)
        except NotSo as error:
            raise StepFailed(f"the stream stands still: {self.jobs.reasons()}") from error
