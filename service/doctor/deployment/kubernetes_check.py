"""Kubernetes check: version of the cluster, and its support for native sidecars."""

import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import aiohttp

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Subject
from service.version import program_name

ACCOUNT = Path("var/run/secrets/kubernetes.io/serviceaccount")
_OLDEST = (1, 29)
_TIMEOUT = aiohttp.ClientTimeout(total=4.0)  # seconds
# Without a server, kubectl prints only its own version.
_NO_SERVER = (
    "kubectl reached no server; check its context (kubectl config current-context), or give a "
    "version such as 1.31"
)
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:[.+-].*)?")


async def check_kubernetes(
    subject: Subject,
    *,
    given: str | None = None,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> AsyncGenerator[Finding, None]:
    """Yield whether the given version, or that of this pod's API server, has native sidecars.

    `root` contains the service account.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    try:
        if given is not None:
            yield version_finding(subject, kubernetes_version(given))
        elif host:
            where = f"[{host}]" if ":" in host else host
            text = await _read_version(f"https://{where}:{port or 443}/version", root)
            yield version_finding(subject, kubernetes_version(text))
        else:
            yield subject.skipped("its version is unknown here", f"run: {_command()}")
    except ConfigurationError as error:
        reason, _, remedy = error.detail.partition("; ")
        yield subject.error(reason, remedy)
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError, too
        text = f"the API server does not return its version ({_reason(error)})"
        yield subject.skipped(text, f"run: {_command()}")


def kubernetes_version(text: str) -> tuple[int, int]:
    """Parse a version, or the output of `kubectl version -o json` or of the API server.

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


async def _read_version(url: str, root: Path) -> str:
    token, authority = (root / ACCOUNT / name for name in ("token", "ca.crt"))
    # Without an account there is no authority to trust, and no token to protect.
    trusted: ssl.SSLContext | bool = False
    headers = {}
    if authority.is_file():
        trusted = ssl.create_default_context(cafile=authority)
        if token.is_file():
            headers["Authorization"] = f"Bearer {token.read_text().strip()}"
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers) as session,
        session.get(url, ssl=trusted, raise_for_status=True) as answer,
    ):
        return await answer.text()


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"status {error.status}"
    return "no answer in time" if isinstance(error, TimeoutError) else "not reachable"


def _command() -> str:
    return f"kubectl version -o json | {program_name()} doctor --kubernetes -"
