"""Executor pod of the rehearsal: volumes, sidecar, kubelet and the executor's Spark jobs."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.image.container import Container
from tools.image.image import Image
from tools.image.runtime import ContainerRuntime, RunningContainer
from tools.k8s.manifests import Manifest
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import until
from tools.rehearsal import machines
from tools.rehearsal.executor_program import RECORDS
from tools.rehearsal.kubelet import Kubelet, SidecarManifest
from tools.rehearsal.machines import HostRoot
from tools.rehearsal.pod_container import PodVolumes, demand_rights, pod_container
from tools.rehearsal.pod_manifests import PodManifests
from tools.rehearsal.servers import CUSTOMERS
from tools.rehearsal.steps import demand

JOB_TIMEOUT_S = 180.0
RIGHT = {"rows": RECORDS, "lines": RECORDS, "wrong": 0}


@dataclass(frozen=True, slots=True)
class Executor:
    """The running executor, and the results of its jobs."""

    container: RunningContainer
    folder: Path

    def open(self, gate: str) -> None:
        """Let the job continue that is paused at the gate."""
        (self.folder / gate / "open").touch()

    def is_at(self, gate: str) -> bool:
        """Whether the job with this gate has started."""
        return (self.folder / gate).exists()

    def demand_rows(self, job: str) -> None:
        """Wait for the end of a job; raises StepFailed unless all its rows are right."""
        until(
            lambda: job in self.results() or not self.container.is_running, within_s=JOB_TIMEOUT_S
        )
        result = self.results().get(job)
        demand(result is not None, f"the executor ended: {self.container.log.read_text()}")
        demand(result == RIGHT, f"{result} and not {RIGHT}")

    def results(self) -> dict[str, dict[str, int]]:
        """{job: counts} of the finished jobs."""
        lines = self.container.log.read_text(errors="replace").splitlines()
        results = [json.loads(line) for line in lines if line.startswith('{"job"')]
        return {result.pop("job"): result for result in results}


class Pod:
    """One executor pod; nothing runs at first."""

    def __init__(
        self, manifests: PodManifests, *, runtime: ContainerRuntime, image: Image, dsn: str
    ) -> None:
        self.manifests = manifests
        self._runtime = runtime
        self._image = image
        self.volumes = PodVolumes(
            runtime.folder / "volumes",
            group=manifests.group,
            config_maps=manifests.config_maps(),
            secrets=manifests.secrets(dsn),
        )

    def kubelet(self, *, pace: float) -> Kubelet:
        """The kubelet that starts and watches the sidecar."""
        address = machines.POD
        manifest = SidecarManifest(
            start=self._start_sidecar,
            startup=self.manifests.probe("startupProbe", address=address),
            liveness=self.manifests.probe("livenessProbe", address=address),
            readiness=self.manifests.probe("readinessProbe", address=address),
            grace_s=self.manifests.grace_s,
        )
        return Kubelet(manifest, pace=pace)

    def start_executor(self, gates: Sequence[str]) -> Executor:
        """Start the Spark jobs; each gate pauses one of them."""
        folder = self._runtime.folder / "executor"
        _, socket = self.manifests.socket_volume()
        machine = _executor_container(
            HostRoot(self._runtime.folder / "executor-root"),
            folder,
            socket=socket,
            gates=tuple(gates),
        )
        container = self._joined(machine, self.manifests.executor)
        return Executor(self._runtime.start("executor", container), folder)

    def request(self, path: str, body: object = None) -> Any:  # noqa: ANN401 -- any JSON
        """The response to a request through the socket."""
        name, _ = self.manifests.socket_volume()
        sidecar = SidecarProcess(self.volumes.path(name))
        reply = sidecar.get(path) if body is None else sidecar.post(path, body)
        return reply.json()

    def demand_rights(self, sidecar: RunningContainer) -> None:
        """Raises StepFailed unless the sidecar has exactly the rights of its manifest."""
        demand_rights(sidecar, self._sidecar())

    def _start_sidecar(self) -> RunningContainer:
        return self._runtime.start("sidecar", self._sidecar())

    def _sidecar(self) -> Container:
        manifest = self.manifests.sidecar
        return self._joined(self._image.container(manifest.get("args", ())), manifest)

    def _joined(self, container: Container, manifest: Manifest) -> Container:
        pod = self.manifests.pod
        specified = pod_container(container, manifest, pod=pod, volumes=self.volumes)
        return machines.joined(specified, "pod")


def _executor_container(
    root: HostRoot, folder: Path, *, socket: str, gates: tuple[str, ...]
) -> Container:
    # This machine's Python, Java and PySpark stand in for the image of Spark.
    root.make()
    folder.mkdir()
    folder.chmod(0o1777)  # for the user of the manifest
    arguments = (f"unix://{socket}", str(CUSTOMERS), str(folder), *gates)
    command = [sys.executable, "-m", "tools.rehearsal.executor_program", *arguments]
    return root.container(command, writable=[folder])
