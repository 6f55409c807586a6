"""How long the certificate of `listen.tls` lasts, by the file that the configuration names.

What the sidecar shows to its callers at this moment is told by its metrics.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime

from service.config.listen_tls import ListenTls
from service.doctor.finding import Finding, Matter

_DAY_S = 86_400.0
WARNING_S = 7 * _DAY_S  # as the alert SidelookCertificateExpiring
ERROR_S = _DAY_S
_REMEDY = (
    "renew it, and replace cert_file and key_file: the sidecar takes them without a restart "
    "(docs/tls.md, Rotation)"
)


@dataclass(frozen=True, slots=True)
class CertificateCheck:
    """The certificate of the TCP listener."""

    tls: ListenTls

    @property
    def matter(self) -> Matter:
        """Its file."""
        return Matter("tls", str(self.tls.cert_file))

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """When it ends; or why it is of no use, where it changed since it was read."""
        try:
            # In a thread: a volume of the network may hang.
            certificate = await asyncio.to_thread(self.tls.certificate)
        except ValueError as error:
            yield self.matter.error(str(error), _REMEDY)
            return
        yield end_finding(self.matter, certificate.expires_s, now_s=time.time())


def end_finding(matter: Matter, expires_s: float, *, now_s: float) -> Finding:
    """What is left of it; both in seconds since the epoch."""
    left_s = expires_s - now_s
    end = f"{datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d %H:%M} UTC"
    if left_s <= 0:
        return matter.error(f"ended on {end}: callers by https refuse it", _REMEDY)
    if left_s <= ERROR_S:
        return matter.error(f"ends within a day, on {end}", _REMEDY)
    if left_s <= WARNING_S:
        return matter.warning(f"ends within a week, on {end}", _REMEDY)
    return matter.ok(f"is valid until {end}")
