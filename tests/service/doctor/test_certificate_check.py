"""When a certificate ends."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.config.listen import ListenTls
from service.doctor.sidecar.secrets_check import CertificateCheck, end_finding
from tests.service.doctor.findings import MATTER, gathered, severities
from tests.service.tls.certificates import Authority, authority, yesterday

END = datetime(2030, 1, 31, 12, 30, tzinfo=UTC)


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Who signs certificates into a folder."""
    return authority(tmp_path)


def check(signer: Authority, *, lasts: timedelta) -> CertificateCheck:
    """That of a certificate which ends so much later."""
    files = signer.issue(not_after=datetime.now(UTC) + lasts)
    return CertificateCheck(ListenTls(cert_file=files.cert_file, key_file=files.key_file))


@pytest.mark.parametrize(
    ("left", "severity", "message"),
    [
        (timedelta(days=8), "ok", "is valid until 2030-01-31 12:30 UTC"),
        (timedelta(days=7), "warning", "ends within a week, on 2030-01-31 12:30 UTC"),
        (timedelta(days=1), "error", "ends within a day, on 2030-01-31 12:30 UTC"),
        (timedelta(0), "error", "ended on 2030-01-31 12:30 UTC: callers by https refuse it"),
    ],
)
def test_end_is_judged(left: timedelta, severity: str, message: str) -> None:
    """The last week is a warning, the last day and what comes after it an error."""
    finding = end_finding(MATTER, END.timestamp(), now_s=(END - left).timestamp())

    assert (finding.severity, finding.message) == (severity, message)


@pytest.mark.parametrize(("days", "severity"), [(30, "ok"), (3, "warning"), (0.5, "error")])
async def test_file_is_read(signer: Authority, days: float, severity: str) -> None:
    """The certificate is that of the file which the configuration names."""
    (finding,) = await gathered(check(signer, lasts=timedelta(days=days)).findings())

    assert (finding.check, finding.subject) == ("tls", str(signer.folder / "tls.crt"))
    assert finding.severity == severity


async def test_bad_renewal_is_an_error(signer: Authority) -> None:
    """One that was put there since the configuration was read is told with its fault."""
    looked_at = check(signer, lasts=timedelta(days=30))
    signer.issue(not_before=yesterday() - timedelta(days=1), not_after=yesterday())

    found = await gathered(looked_at.findings())

    assert severities(found) == ["error"]
    assert "expired" in found[0].message
