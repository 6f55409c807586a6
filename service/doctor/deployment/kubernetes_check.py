"""Kubernetes check: version, and support for native sidecars."""

import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Subject

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


def version_finding(matter: Subject, version: tuple[int, int]) -> Finding:
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


ACCOUNT = Path("var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT = aiohttp.ClientTimeout(total=4.0)  # seconds


@dataclass(frozen=True, slots=True)
class KubernetesCheck:
    """What the caller told of the version, if anything; accounts are mounted below `root`."""

    told: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    root: Path = Path("/")

    @property
    def matter(self) -> Subject:
        """The cluster."""
        return Subject("kubernetes", "cluster")

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Whether its version is new enough."""
        host = self.environ.get("KUBERNETES_SERVICE_HOST")
        if self.told is None and not host:
            yield self.matter.skipped("its version is not known here", f"run: {ASK}")
            return
        try:
            text = await self._asked(host) if host and self.told is None else self.told
            yield version_finding(self.matter, kubernetes_version(text or ""))
        except ConfigurationError as error:
            reason, _, remedy = error.detail.partition("; ")
            yield self.matter.error(reason, remedy)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError, too
            yield self.matter.skipped(
                f"the API server does not tell its version ({_reason(error)})", f"run: {ASK}"
            )

    async def _asked(self, host: str) -> str:
        port = self.environ.get("KUBERNETES_SERVICE_PORT", "443")
        where = f"[{host}]" if ":" in host else host
        token, authority = (self.root / ACCOUNT / name for name in ("token", "ca.crt"))
        # Without an account there is no authority to trust, and nothing that could be stolen.
        trusted: ssl.SSLContext | bool = False
        headers = {}
        if authority.is_file():
            trusted = ssl.create_default_context(cafile=authority)
            if token.is_file():
                headers["Authorization"] = f"Bearer {token.read_text().strip()}"
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT, headers=headers) as session,
            session.get(
                f"https://{where}:{port}/version", ssl=trusted, raise_for_status=True
            ) as answer,
        ):
            return await answer.text()


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"status {error.status}"
    return "no answer in time" if isinstance(error, TimeoutError) else "it cannot be reached"
