"""Which version a Kubernetes cluster has, and whether it knows native sidecars.

How it is asked stands in `kubernetes_check`.
"""

import json
import re

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Matter

OLDEST = (1, 29)
ASK = "kubectl version -o json | python -m service doctor --kubernetes -"
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def kubernetes_version(text: str) -> tuple[int, int]:
    """The version in a text, or in what `kubectl version -o json` or the API server print.

    Raises ConfigurationError naming the accepted forms.
    """
    match = _VERSION.fullmatch(_git_version(text.strip()))
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


def _git_version(text: str) -> str:
    if not text.startswith("{"):
        return text
    try:
        told = json.loads(text)
    except ValueError:
        return ""
    # Of kubectl's two versions the server's is meant; without a cluster it tells its own only.
    server = told if "gitVersion" in told else told.get("serverVersion")
    return str(server.get("gitVersion", "")) if isinstance(server, dict) else ""
