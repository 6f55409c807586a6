"""Kubernetes check: whether a version of the cluster supports native sidecars."""

import json
import re
from collections.abc import Iterator

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Subject, refusal_finding
from service.version import program_name

_OLDEST = (1, 29)
# Without a server, kubectl prints only its own version.
_NO_SERVER = (
    "kubectl reached no server; check its context (kubectl config current-context), or give a "
    "version such as 1.31"
)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


def check_kubernetes(subject: Subject, given: str | None) -> Iterator[Finding]:
    """Yield whether the given version of the cluster has native sidecars."""
    if given is None:
        yield subject.skipped("its version is unknown here", f"run: {_command()}")
        return
    try:
        yield version_finding(subject, kubernetes_version(given))
    except ConfigurationError as error:
        yield refusal_finding(subject, error)


def kubernetes_version(text: str) -> tuple[int, int]:
    """Parse a version, or the output of `kubectl version -o json` or of an API server.

    Raises ConfigurationError naming the accepted forms.
    """
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if isinstance(parsed, dict):
        if "clientVersion" in parsed and "serverVersion" not in parsed:
            raise ConfigurationError([_NO_SERVER])
        # Of kubectl's two versions, the server's counts.
        server = parsed if "gitVersion" in parsed else parsed.get("serverVersion")
        text = str(server.get("gitVersion", "")) if isinstance(server, dict) else ""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        fault = f"not a server version; give one such as 1.31, or pipe: {_command()}"
        raise ConfigurationError([fault])
    return int(match[1]), int(match[2])


def version_finding(subject: Subject, version: tuple[int, int]) -> Finding:
    """Return whether the cluster supports native sidecars."""
    text = ".".join(map(str, version))
    if version >= _OLDEST:
        return subject.ok(f"has version {text}, which supports native sidecars")
    return subject.error(
        f"has version {text}, which ignores restartPolicy: Always of the sidecar: executors wait "
        "forever",
        "update the cluster to 1.29 or later",
    )


def _command() -> str:
    return f"kubectl version -o json | {program_name()} doctor --kubernetes -"
