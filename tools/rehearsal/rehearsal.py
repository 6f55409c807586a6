"""Scenario of an executor pod's life, with real servers and the pod's own manifests.

Runs in namespaces of its own, which `__main__` creates.
"""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tools.image.image import Image
from tools.image.runtime import ContainerRuntime, control_groups
from tools.processes.until import until
from tools.rehearsal import machines
from tools.rehearsal.executor_program import FIRST, LAST, RECORDS
from tools.rehearsal.kubelet import Kubelet
from tools.rehearsal.machines import HostRoot
from tools.rehearsal.pod import Executor, Pod
from tools.rehearsal.pod_manifests import PodManifests
from tools.rehearsal.servers import CUSTOMERS, Database, Monitoring
from tools.rehearsal.steps import demand, step

PATIENCE_S = 180.0
KILLED, STARVED = "while the sidecar is killed", "while the sidecar uses up its memory"
# Uses memory until the kernel kills a process of the group.
USE_MEMORY = "pieces = []\nwhile True: pieces.append(b'x' * 2**24)"
KILLED_BY_SIGNAL = 128


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The pod and the servers of one rehearsal."""

    pod: Pod
    kubelet: Kubelet
    database: Database
    monitoring: Monitoring
    runtime: ContainerRuntime
    patience_s: float  # for the sidecar's first start
    new_keys: Iterator[int] = field(default_factory=lambda: itertools.count(10 * CUSTOMERS))

    @classmethod
    def of(
        cls,
        manifests: PodManifests,
        *,
        runtime: ContainerRuntime,
        image: Image,
        pace: float,
        patience_s: float,
    ) -> "Rehearsal":
        """Create the parts; nothing runs yet."""
        root, folder = HostRoot(runtime.folder / "database-root"), runtime.folder / "database"
        database = Database(runtime, root, folder)
        pod = Pod(manifests, runtime=runtime, image=image, dsn=database.dsn)
        root, folder = HostRoot(runtime.folder / "monitoring-root"), runtime.folder / "monitoring"
        monitoring = Monitoring(runtime, root, folder)
        return cls(pod, pod.kubelet(pace=pace), database, monitoring, runtime, patience_s)

    def play(self) -> None:
        """Run and print all steps; raises StepFailed at the first failure."""
        with ExitStack() as stack:
            self._prepare(stack)
            self._start_sidecar(stack)
            executor = self._start_executor(stack)
            self._watch(stack)
            self._lose_sidecar(executor)
            self._lose_database()
            self._delete(executor)
        with step("nothing is left: no process, no mount, no control group"):
            machines.remove_network()
            found = _left_over(self.runtime.folder)
            demand(not found, f"left: {', '.join(found)}")

    def _prepare(self, stack: ExitStack) -> None:
        with step("network: pod, database and monitoring each have a namespace and an address"):
            machines.make_network()
        with step("database: PostgreSQL responds at its address and has the table"):
            self.database.make()
            stack.callback(self.database.stop)
            self.database.start()
            self.database.fill()
        with step("volumes: ConfigMap, secret, and the socket's folder in memory"):
            volumes = self.pod.manifests.volumes
            self.pod.volumes.make(volumes)
            stack.callback(self.pod.volumes.remove, volumes)

    def _start_sidecar(self, stack: ExitStack) -> None:
        kubelet = self.kubelet
        with step(
            f"sidecar: its startup probe passes at {machines.POD}, before the executor starts"
        ):
            kubelet.run()
            stack.callback(kubelet.abandon)
            kubelet.wait_for_start(within_s=self.patience_s)
        with step("sidecar: it is ready, with the rights and the memory limit of its manifest"):
            until(kubelet.is_ready.is_set, within_s=self.patience_s)
            self.pod.demand_rights(kubelet.running())

    def _start_executor(self, stack: ExitStack) -> Executor:
        with step(f"executor: a Spark job in local-cluster gets {RECORDS} right rows"):
            executor = self.pod.start_executor((KILLED, STARVED))
            stack.callback(executor.container.remove)
            executor.demand_rows(FIRST)
        return executor

    def _watch(self, stack: ExitStack) -> None:
        target = f"{machines.POD}:{self.pod.manifests.health_port}"
        with step(f"monitoring: Prometheus scrapes {target} and counts the executor's lookups"):
            prometheus = self.monitoring.start(target)
            stack.callback(prometheus.remove)
            query = "sum(sidelook_lookups_total)"
            until(lambda: self.monitoring.value(query) >= 2 * CUSTOMERS, within_s=PATIENCE_S)
            # Through the read-only mount of the executor, with the rights of its group.
            shared = "sum(sidelook_shared_lookups_total)"
            until(lambda: self.monitoring.value(shared) > 0, within_s=PATIENCE_S)
            # A scrape of more than a second marks the target as down for a while.
            until(lambda: self.monitoring.value("up") == 1, within_s=PATIENCE_S)

    def _lose_sidecar(self, executor: Executor) -> None:
        with step("sidecar killed during a job: only the sidecar restarts, all rows are right"):
            until(lambda: executor.is_at(KILLED) and self._has_channels(), within_s=PATIENCE_S)
            self._restarted_by(lambda: self.kubelet.running().signal(signal.SIGKILL))
            executor.open(KILLED)
            executor.demand_rows(KILLED)
        with step("sidecar above its memory limit during a job: killed, restarted, rows right"):
            until(lambda: executor.is_at(STARVED) and self._has_channels(), within_s=PATIENCE_S)
            self._restarted_by(self._use_up_memory)
            executor.open(STARVED)
            executor.demand_rows(STARVED)

    def _lose_database(self) -> None:
        kubelet = self.kubelet
        with step("database down: lookups fail, the sidecar stays alive"):
            restarts = kubelet.restarts
            self.database.stop()
            until(lambda: not self._is_answered(), within_s=PATIENCE_S)
            failure = self.pod.manifests.probe("livenessProbe", address=machines.POD).failure()
            demand(failure is None and kubelet.restarts == restarts, f"{failure}")
        with step("sidecar frozen: its liveness probe fails, it restarts without a database"):
            self._restarted_by(lambda: kubelet.running().signal(signal.SIGSTOP))
            demand("sidecar: liveness probe failed" in kubelet.history(), "another restart reason")
            demand(not kubelet.is_ready.is_set(), "it is ready without a database")
        with step("database back: the sidecar is ready and lookups succeed, without a restart"):
            restarts = kubelet.restarts
            self.database.start()
            until(lambda: self._is_answered() and kubelet.is_ready.is_set(), within_s=PATIENCE_S)
            demand(kubelet.restarts == restarts, "the sidecar was restarted")

    def _delete(self, executor: Executor) -> None:
        with step("pod deleted: the executor's last job is answered, then the sidecar drains"):
            sidecar = self.kubelet.running()
            status = self.kubelet.stop_executor(executor.container)
            executor.demand_rows(LAST)
            demand(status == 0, f"the executor ended with {status}")
            demand(sidecar.is_running, "the sidecar ended before the executor")
            demand("service.draining" not in sidecar.log.read_text(), "it drained too early")
            status = self.kubelet.end_sidecar()
            demand(status == 0, f"the sidecar ended with {status}: {sidecar.log.read_text()}")
            log = sidecar.log.read_text()
            demand(0 < log.find("service.draining") < log.find("service.stopped"), log)

    def _restarted_by(self, fault: Callable[[], object]) -> None:
        restarts = self.kubelet.restarts
        fault()
        until(lambda: self.kubelet.restarts > restarts, within_s=PATIENCE_S)
        self.kubelet.wait_for_start(within_s=PATIENCE_S)

    def _use_up_memory(self) -> None:
        sidecar = self.kubelet.running()
        # The kernel must kill the sidecar and no other process of the group.
        Path(f"/proc/{sidecar.process_id}/oom_score_adj").write_text("1000")
        sidecar.execute(["python", "-c", USE_MEMORY])
        status = sidecar.wait()
        demand(status == KILLED_BY_SIGNAL + signal.SIGKILL, f"it ended with {status}")

    def _has_channels(self) -> bool:
        return bool(self.pod.request("/v1/channels")["channels"])

    def _is_answered(self) -> bool:
        # A new key, so that the cache cannot answer.
        request = {"keys": [next(self.new_keys)], "timeout_ms": 500}
        answer = self.pod.request("/v1/dimensions/customers/lookup", request)
        return answer.get("outcomes") == ["missing"]


def _left_over(folder: Path) -> list[str]:
    # Other processes of the namespace, mounts below the folder, and control groups.
    return [*_processes(), *_mounts(folder), *map(str, control_groups(folder.name))]


def _processes() -> Iterator[str]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            yield f"process {entry.name} {command}"


def _mounts(folder: Path) -> Iterator[str]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        target = line.split()[1]
        if target.startswith(f"{folder}/"):
            yield f"mount {target}"
