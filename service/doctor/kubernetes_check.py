"""The cluster that executors run in: told by the caller, or asked from inside of a pod.

No right is needed: a server that does not tell everybody its version is not asked another way.
"""

import os
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from lookup_core.errors import ConfigurationError
from service.doctor.finding import Finding, Matter
from service.doctor.kubernetes_version import ASK, kubernetes_version, version_finding

ACCOUNT = Path("var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT = aiohttp.ClientTimeout(total=4.0)  # seconds


@dataclass(frozen=True, slots=True)
class KubernetesCheck:
    """What the caller told of the version, if anything; accounts are mounted below `root`."""

    told: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    root: Path = Path("/")

    @property
    def matter(self) -> Matter:
        """The cluster."""
        return Matter("kubernetes", "cluster")

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
