"""Certificate rotation: reloads the certificate files of a listener when they change.

The listener uses `current` for each new connection.
"""

import asyncio

import structlog

from service.tls.server_certificate import CertificateFiles, server_certificate

CHECK_PERIOD_S = 10.0


class CertificateRotation:
    """Holds the newest valid certificate; an invalid one never replaces it."""

    def __init__(self, files: CertificateFiles, *, check_period_s: float = CHECK_PERIOD_S) -> None:
        """Load the files; raises ValueError if they are invalid."""
        self._files = files
        self._check_period_s = check_period_s
        self._versions = files.versions()
        self._fault = ""  # of the rejected files, while the previous certificate is used
        self.current = server_certificate(files)
        self.taken_total = 0
        self.refused_total = 0

    def __contains__(self, host: object) -> bool:
        """Whether the certificate names this host, so that clients may send it as Host."""
        return isinstance(host, str) and self.current.is_for(host)

    @property
    def expires_s(self) -> float:
        """The expiry of the current certificate, in seconds since the epoch."""
        return self.current.expires_s

    async def run(self) -> None:
        """Check the files periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._check_period_s)
            self.check()

    def check(self) -> bool:
        """Load changed files; returns whether the certificate was replaced.

        An invalid certificate is logged once and checked again, as its validity may begin later.
        """
        versions = self._files.versions()
        if versions == self._versions:
            return False
        try:
            self.current = server_certificate(self._files)
        except ValueError as error:
            self._reject(str(error))
            return False
        except Exception as error:  # noqa: BLE001  # border of the task: a file must not stop the service
            self._reject(f"{self._files.cert_file} cannot be loaded: {type(error).__name__}")
            return False
        self._versions, self._fault = versions, ""
        self.taken_total += 1
        structlog.get_logger().info("tls.certificate_loaded", path=str(self._files.cert_file))
        return True

    def _reject(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            self.refused_total += 1
            structlog.get_logger().error(
                "tls.certificate_rejected", code="invalid_certificate", detail=fault
            )
