"""The shipped pod template, and variants of it."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from service.doctor.deployment.manifest import Manifest, read_manifests
from service.doctor.deployment.pod_template import PodTemplate

TEMPLATE = Path(__file__).parents[3] / "k8s/base/executor-pod/executor-pod-template.yaml"
SOCKET = Path("/run/sidelook/sidelook.sock")


def template(change: Callable[[Any, Any], object] = lambda _spec, _sidecar: None) -> PodTemplate:
    """The shipped template after a change of its specification and of its sidecar."""
    (shipped,) = read_manifests(TEMPLATE)
    pod = copy.deepcopy(dict(shipped.values))
    change(pod["spec"], pod["spec"]["initContainers"][0])
    return PodTemplate.of(Manifest(pod))


def make_ordinary(spec: Any, sidecar: Any) -> None:  # noqa: ANN401  # parts of a YAML file
    """Let the sidecar be an ordinary container."""
    spec["containers"].append(sidecar)
    del spec["initContainers"]
