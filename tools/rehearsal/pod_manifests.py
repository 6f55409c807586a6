"""Manifests of the rehearsed pod: its containers, volumes, probes and configuration.

They need not obey the rules of `tools.k8s`: broken pods are rehearsed, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.k8s.manifests import (
    BASE,
    CONFIG_MAP,
    POD_TEMPLATE,
    SPARK_SETTINGS,
    Manifest,
    ManifestUnreadable,
    parse_yaml,
    read_manifest,
    read_spark_settings,
)
from tools.rehearsal.kubelet import Probe, named_port
from tools.rehearsal.steps import StepFailed

GRACE = "spark.kubernetes.executor.terminationGracePeriodSeconds"


@dataclass(frozen=True, slots=True)
class PodManifests:
    """The pod template and the ConfigMap of one folder."""

    pod: Manifest
    config_map: Manifest

    @classmethod
    def read(cls, folder: Path) -> "PodManifests":
        """Read both files; raises OSError without one, StepFailed if one is no manifest."""
        pod, config_map = (each.relative_to(BASE) for each in (POD_TEMPLATE, CONFIG_MAP))
        try:
            return cls(read_manifest(folder / pod), read_manifest(folder / config_map))
        except ManifestUnreadable as error:
            raise StepFailed(str(error)) from error

    @property
    def sidecar(self) -> Manifest:
        """The only init container; raises StepFailed if it is not native."""
        (container,) = self.pod["spec"]["initContainers"]
        if container.get("restartPolicy") != "Always":
            raise StepFailed("the init container is no sidecar: its restartPolicy is not Always")
        manifest: Manifest = container
        return manifest

    @property
    def executor(self) -> Manifest:
        """Spark's container."""
        (container,) = self.pod["spec"]["containers"]
        manifest: Manifest = container
        return manifest

    @property
    def volumes(self) -> list[Manifest]:
        """The pod's volumes."""
        volumes: list[Manifest] = self.pod["spec"]["volumes"]
        return volumes

    @property
    def group(self) -> int | None:
        """The fsGroup of the volumes; None: they belong to root."""
        group: int | None = self.pod["spec"].get("securityContext", {}).get("fsGroup")
        return group

    @property
    def grace_s(self) -> float:
        """The grace period of both containers, as in spark.conf."""
        return float(read_spark_settings(SPARK_SETTINGS)[GRACE].removesuffix("s"))

    @property
    def settings(self) -> Manifest:
        """The sidecar's configuration."""
        return parse_yaml(self.config_map["data"]["sidelook.yaml"])

    @property
    def health_port(self) -> int:
        """The port that Prometheus scrapes."""
        return named_port(self.sidecar, "health")

    def config_maps(self) -> Mapping[str, Mapping[str, str]]:
        """{name: {file: text}} of the cluster's ConfigMaps."""
        return {self.config_map["metadata"]["name"]: self.config_map["data"]}

    def secrets(self, dsn: str) -> Mapping[str, Mapping[str, str]]:
        """{name: {file: text}} of the cluster's secrets, with the DSN file of the configuration."""
        (dimension,) = self.settings["dimensions"].values()
        file = PurePosixPath(dimension["source"]["dsn_file"])
        named = [each["secret"]["secretName"] for each in self.volumes if "secret" in each]
        return {name: {file.name: dsn} for name in named}

    def probe(self, name: str, *, address: str) -> Probe:
        """A probe of the sidecar."""
        return Probe.of(self.sidecar, name, address=address)

    def socket_volume(self) -> tuple[str, str]:
        """The name of the volume that the executor shares, and the socket's path in it."""
        path: str = self.settings["listen"]["unix"]
        folder = str(PurePosixPath(path).parent)
        for mount in self.executor["volumeMounts"]:
            if mount["mountPath"] == folder:
                return mount["name"], path
        raise StepFailed(f"the executor mounts no volume at {folder}, where the socket is")
