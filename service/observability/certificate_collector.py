"""Tells until when the certificate of `listen.tls` is good, and how its renewals went.

Looks at no file: whoever holds the certificate does.
"""

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from service.observability import metrics
from service.observability.metrics import RenewalResult
from service.observability.sampled_family import Samples, sampled_family


class HeldCertificate(Protocol):
    """What is told of a certificate."""

    taken_total: int
    refused_total: int

    @property
    def expires_s(self) -> float:
        """Since the epoch."""


class CertificateCollector(Collector):
    """The families of a certificate; without samples where there is none."""

    def __init__(self, certificate: HeldCertificate | None) -> None:
        self._certificate = certificate

    def collect(self) -> Iterator[Family]:
        """One family for each metric."""
        expiry: Samples = []
        renewals: Samples = []
        if self._certificate is not None:
            expiry = [((), self._certificate.expires_s)]
            renewals = [
                ((RenewalResult.TAKEN.value,), self._certificate.taken_total),
                ((RenewalResult.REFUSED.value,), self._certificate.refused_total),
            ]
        yield sampled_family(metrics.TLS_CERTIFICATE_EXPIRY_SECONDS, expiry)
        yield sampled_family(metrics.TLS_CERTIFICATE_RENEWALS, renewals)
