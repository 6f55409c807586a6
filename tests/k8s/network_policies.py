"""Whom NetworkPolicies let in to a pod, as the Kubernetes API defines it.

Ingress by labels, namespaces and numbered ports: what the policies of k8s/ and Spark's use.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from tests.k8s.manifests import Manifest

NAMESPACE_NAME = "kubernetes.io/metadata.name"  # Kubernetes labels each namespace with its name


@dataclass(frozen=True, slots=True)
class Pod:
    """What policies see of a pod."""

    namespace: str
    labels: dict[str, str]


def admits(policies: Iterable[Manifest], pod: Pod, *, sender: Pod, port: int) -> bool:
    """Whether the pod hears the sender; the policies are all of the pod's own namespace.

    Nobody's pod hears all; one that any policy selects hears whom one of those lets in.
    """
    selecting = [each for each in policies if _selects(each["spec"]["podSelector"], pod.labels)]
    rules = [rule for each in selecting for rule in each["spec"].get("ingress", [])]
    return not selecting or any(_lets_in(rule, pod, sender, port) for rule in rules)


def open_rules(policy: Manifest) -> list[str]:
    """What is wrong with the rules that let in whom they do not name: anybody, or addresses."""
    rules = enumerate(policy["spec"].get("ingress", []))
    return [
        f"spec.ingress.{number} lets in more than pods that it names"
        for number, rule in rules
        if not all(_names_pods(peer) for peer in rule.get("from") or [{}])
    ]


def _names_pods(peer: Manifest) -> bool:
    # All pods of one namespace have a name in common: that of the namespace.
    has_namespace = "namespaceSelector" not in peer or any(peer["namespaceSelector"].values())
    return (
        has_namespace and peer.keys() & {"podSelector", "namespaceSelector"} == peer.keys() != set()
    )


def _lets_in(rule: Manifest, pod: Pod, sender: Pod, port: int) -> bool:
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
    return matched and all(_holds(each, labels) for each in selector.get("matchExpressions", []))


def _holds(expression: Manifest, labels: dict[str, str]) -> bool:
    if expression["operator"] != "In":
        message = f"no NetworkPolicy here uses the operator {expression['operator']}"
        raise NotImplementedError(message)
    return labels.get(expression["key"]) in expression["values"]
