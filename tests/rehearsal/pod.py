"""The executor pod: its volumes, its two containers and who watches them, out of the manifests.

The story that is played with it is `rehearsal`'s part.
"""

from collections.abc import Sequence
from typing import Any

from tests.end_to_end.sidecar_process import SidecarProcess
from tests.image.container import Container
from tests.image.container_runtime import ContainerRuntime, RunningContainer
from tests.image.image import Image
from tests.k8s.manifests import Manifest
from tests.rehearsal import network
from tests.rehearsal.executor import Executor, executor_container
from tests.rehearsal.host_root import HostRoot
from tests.rehearsal.kubelet import Kubelet, SidecarManifest
from tests.rehearsal.pod_container import pod_container
from tests.rehearsal.pod_manifests import PodManifests
from tests.rehearsal.pod_volumes import PodVolumes
from tests.rehearsal.rights import demand_rights


class Pod:
    """One executor pod; nothing of it runs yet."""

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
        """Who starts and watches the sidecar."""
        address = network.POD
        manifest = SidecarManifest(
            start=self._start_sidecar,
            startup=self.manifests.probe("startupProbe", address=address),
            liveness=self.manifests.probe("livenessProbe", address=address),
            readiness=self.manifests.probe("readinessProbe", address=address),
            grace_s=self.manifests.grace_s,
        )
        return Kubelet(manifest, pace=pace)

    def start_executor(self, gates: Sequence[str]) -> Executor:
        """The Spark jobs begin; each gate holds one of them."""
        folder = self._runtime.folder / "executor"
        _, socket = self.manifests.socket_volume()
        machine = executor_container(
            HostRoot(self._runtime.folder / "executor-root"),
            folder,
            socket=socket,
            gates=tuple(gates),
        )
        container = self._joined(machine, self.manifests.executor)
        return Executor(self._runtime.start("executor", container), folder)

    def ask(self, path: str, body: object = None) -> Any:  # noqa: ANN401 -- any JSON
        """A question through the socket, from the node."""
        name, _ = self.manifests.socket_volume()
        sidecar = SidecarProcess(self.volumes.path(name))
        reply = sidecar.get(path) if body is None else sidecar.post(path, body)
        return reply.json()

    def demand_rights(self, sidecar: RunningContainer) -> None:
        """It must have what the manifest grants, and no more."""
        demand_rights(sidecar, self._sidecar())

    def _start_sidecar(self) -> RunningContainer:
        return self._runtime.start("sidecar", self._sidecar())

    def _sidecar(self) -> Container:
        manifest = self.manifests.sidecar
        return self._joined(self._image.container(manifest.get("args", ())), manifest)

    def _joined(self, container: Container, manifest: Manifest) -> Container:
        pod = self.manifests.pod
        specified = pod_container(container, manifest, pod=pod, volumes=self.volumes)
        return network.joined(specified, "pod")
