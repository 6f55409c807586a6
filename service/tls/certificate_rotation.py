"""Looks every so often whether a listener's certificate files have changed, and takes the new ones.

Serves nobody: who listens takes the context of the moment for each connection.
"""

import asyncio

import structlog

from service.tls.server_certificate import CertificateFiles, server_certificate

LOOK_EVERY_S = 10.0


class CertificateRotation:
    """Holds the newest certificate that was fit to use; a faulty one never takes its place."""

    def __init__(self, files: CertificateFiles, *, look_every_s: float = LOOK_EVERY_S) -> None:
        """Read the files; raises ValueError if they are not fit to use."""
        self._files = files
        self._look_every_s = look_every_s
        self._versions = files.versions()
        self._fault = ""  # of the newest files, while the older ones are used
        self.current = server_certificate(files)
        self.taken_total = 0
        self.refused_total = 0

    def __contains__(self, host: object) -> bool:
        """Whether the certificate is for this host: then callers may name it."""
        return isinstance(host, str) and self.current.is_for(host)

    @property
    def expires_s(self) -> float:
        """When the certificate in use ends, since the epoch."""
        return self.current.expires_s

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._look_every_s)
            self.look()

    def look(self) -> bool:
        """Whether a new certificate took over, for connections from now on.

        One that is faulty is told once, and looked at again: it may only be too early for it.
        """
        versions = self._files.versions()
        if versions == self._versions:
            return False
        try:
            self.current = server_certificate(self._files)
        except ValueError as error:
            self._refuse(str(error))
            return False
        except Exception as error:  # noqa: BLE001  # the task's border: a file ends no service
            self._refuse(f"{self._files.cert_file} cannot be used: {type(error).__name__}")
            return False
        self._versions, self._fault = versions, ""
        self.taken_total += 1
        structlog.get_logger().info("tls.certificate_taken", path=str(self._files.cert_file))
        return True

    def _refuse(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            self.refused_total += 1
            structlog.get_logger().error(
                "tls.certificate_refused", code="kept_the_old_one", detail=fault
            )
