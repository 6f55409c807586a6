"""The certificate's metrics."""

from dataclasses import dataclass

from service.observability.collector import CertificateCollector
from service.observability.prometheus_observer import Exposition


@dataclass
class Held:
    """A certificate with these figures."""

    expires_s: float = 1e9
    taken_total: int = 2
    refused_total: int = 1


def samples(collector: CertificateCollector) -> list[str]:
    """The lines with values."""
    lines = Exposition([collector]).render().decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_end_and_renewals_are_told() -> None:
    """Until when it is good, and how often another one took its place, or could not."""
    assert samples(CertificateCollector(Held())) == [
        "sidelook_tls_certificate_expiry_seconds 1e+09",
        'sidelook_tls_certificate_renewals_total{result="taken"} 2.0',
        'sidelook_tls_certificate_renewals_total{result="refused"} 1.0',
    ]


def test_without_tls_nothing_is_told() -> None:
    """A zero would be taken for an expired certificate."""
    assert samples(CertificateCollector(None)) == []
