"""Which version a Kubernetes cluster has, and whether it knows native sidecars.

How it is asked stands in `kubernetes_check`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Matter

OLDEST = (1, 29)
ASK = "kubectl version -o json | python -m service doctor --kubernetes -"
# Without a cluster kubectl tells its own version only.
_NO_SERVER = (
    "kubectl reached no server; check its context (kubectl config current-context), or give the "
    "version, such as 1.31"
)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def kubernetes_version(text: str) -> tuple[int, int]:
    """The version in a text, or in what `kubectl version -o json` or the API server print.

    Raises ConfigurationError naming the accepted forms.
    """
    told = _told(text.strip())
    if "clientVersion" in told and "serverVersion" not in told:
        raise ConfigurationError([_NO_SERVER])
    match = _VERSION.fullmatch(_git_version(told) if told else text.strip())
    if match is None:
        raise ConfigurationError([f"no version of a server; give one such as 1.31, or pipe: {ASK}"])
    return int(match[1]), int(match[2])


def version_finding(matter: Matter, version: tuple[int, int]) -> Finding:
    """Whether the cluster knows native sidecars."""
    text = ".".join(map(str, version))
    if version < OLDEST:
        return matter.error(
            f"is version {text}: it drops the sidecar's restartPolicy in silence, and executors "
            "wait for ever",
            "update the cluster to 1.29 or later",
        )
    return matter.ok(f"is version {text}, which knows native sidecars")


def _told(text: str) -> Mapping[str, Any]:
    """The text as an object; empty if it is none."""
    try:
        told = json.loads(text)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _git_version(told: Mapping[str, Any]) -> str:
    # Of kubectl's two versions the server's is meant.
    server = told if "gitVersion" in told else told.get("serverVersion")
    return str(server.get("gitVersion", "")) if isinstance(server, dict) else ""
