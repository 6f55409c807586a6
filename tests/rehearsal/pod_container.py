"""A container of the pod as its manifest asks for it: command, variables, mounts, rights, limits.

Where it and the pod both say something, the container's word counts, as in Kubernetes.
"""

from dataclasses import replace

from tests.image.container import Container, Mount
from tests.image.seccomp_profile import Profile, runtime_default
from tests.k8s.manifests import Manifest
from tests.rehearsal.pod_volumes import PodVolumes, byte_count
from tests.rehearsal.steps import StepFailed


def pod_container(
    container: Container, manifest: Manifest, *, pod: Manifest, volumes: PodVolumes
) -> Container:
    """The image's container with what the manifest says of it."""
    security = {**pod["spec"].get("securityContext", {}), **manifest.get("securityContext", {})}
    variables = {each["name"]: each["value"] for each in manifest.get("env", [])}
    limit = manifest.get("resources", {}).get("limits", {}).get("memory")
    user = security.get("runAsUser", container.user)
    if security.get("runAsNonRoot") and user == 0:
        raise StepFailed(f"{manifest['name']} would run as root, which runAsNonRoot forbids")
    mounts = [_mount(each, volumes) for each in manifest.get("volumeMounts", [])]
    return replace(
        container,
        environ={**container.environ, **variables},
        user=user,
        group=security.get("runAsGroup", container.group),
        groups=[security["fsGroup"]] if "fsGroup" in security else [],
        capabilities=_capabilities(security),
        is_root_read_only=security.get("readOnlyRootFilesystem", False),
        may_gain_privileges=security.get("allowPrivilegeEscalation", True),
        memory_bytes=None if limit is None else byte_count(limit),
        seccomp=_seccomp(security),
        mounts=[*container.mounts, *mounts],
    )


def _mount(manifest: Manifest, volumes: PodVolumes) -> Mount:
    folder = volumes.path(manifest["name"])
    if not folder.exists():
        raise StepFailed(f"the pod has no volume {manifest['name']}")
    is_read_only = manifest.get("readOnly", False)
    return Mount(manifest["mountPath"], folder, is_read_only=is_read_only)


def _capabilities(security: Manifest) -> tuple[str, ...]:
    # Whoever keeps some gets them by name here; the pods of this project keep none.
    capabilities = security.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"]:
        raise StepFailed("capabilities that are not dropped are not rehearsed: drop ALL")
    return tuple(f"CAP_{name}" for name in capabilities.get("add", []))


def _seccomp(security: Manifest) -> Profile | None:
    kind = security.get("seccompProfile", {}).get("type", "Unconfined")
    return runtime_default() if kind == "RuntimeDefault" else None
