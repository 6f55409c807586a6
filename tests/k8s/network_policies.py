"""NetworkPolicy semantics: which senders a pod admits, by labels, namespaces and numbered ports."""

from collections.abc import Iterable
from dataclasses import dataclass

from tools.k8s.manifests import Manifest

NAMESPACE_NAME = "kubernetes.io/metadata.name"  # Kubernetes labels each namespace with its name


@dataclass(frozen=True, slots=True)
class Pod:
    """The parts of a pod that policies select by."""

    namespace: str
    labels: dict[str, str]


def admits(policies: Iterable[Manifest], pod: Pod, *, sender: Pod, port: int) -> bool:
    """Whether the pod admits the sender; the policies are all of the pod's namespace.

    A pod that no policy selects admits all senders.
    """
    selecting = [each for each in policies if _selects(each["spec"]["podSelector"], pod.labels)]
    rules = [rule for each in selecting for rule in each["spec"].get("ingress", [])]
    return not selecting or any(_admits(rule, pod, sender, port) for rule in rules)


def _admits(rule: Manifest, pod: Pod, sender: Pod, port: int) -> bool:
    ports = [each["port"] for each in rule.get("ports", [])]
    peers = rule.get("from") or []
    is_peer = not peers or any(_is_peer(peer, pod, sender) for peer in peers)
    return is_peer and (not ports or port in ports)


def _is_peer(peer: Manifest, pod: Pod, sender: Pod) -> bool:
    if "namespaceSelector" in peer:
        is_near = _selects(peer["namespaceSelector"], {NAMESPACE_NAME: sender.namespace})
    else:
        is_near = sender.namespace == pod.namespace
    return is_near and _selects(peer.get("podSelector", {}), sender.labels)


def _selects(selector: Manifest, labels: dict[str, str]) -> bool:
    matched = all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    )
    return matched and all(_matches(each, labels) for each in selector.get("matchExpressions", []))


def _matches(expression: Manifest, labels: dict[str, str]) -> bool:
    if expression["operator"] != "In":
        message = f"no NetworkPolicy here uses the operator {expression['operator']}"
        raise NotImplementedError(message)
    return labels.get(expression["key"]) in expression["values"]
