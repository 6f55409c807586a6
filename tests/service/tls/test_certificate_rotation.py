"""A new certificate takes over once it is fit to use, and not before."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.tls.certificate_rotation import LOOK_EVERY_S, CertificateRotation
from tests.service.tls.certificates import Authority, authority, tomorrow, yesterday

PATIENCE_S = 10.0


@pytest.fixture
def signer(tmp_path: Path) -> Authority:
    """Signs what the tests need."""
    return authority(tmp_path)


def test_unchanged_files_are_left_alone(signer: Authority) -> None:
    """Looking costs nothing as long as nothing has changed."""
    rotation = CertificateRotation(signer.issue())
    before = rotation.current

    assert rotation.look() is False
    assert rotation.current is before


def test_new_certificate_takes_over(signer: Authority) -> None:
    """With its names, for those who ask whether a host is known, and its end."""
    rotation = CertificateRotation(signer.issue("old.example"))
    end = tomorrow().replace(microsecond=0)
    signer.issue("new.example", not_after=end)

    assert rotation.look() is True
    assert ("old.example" in rotation, "new.example" in rotation) == (False, True)
    assert (rotation.expires_s, rotation.taken_total) == (end.timestamp(), 1)


def test_faulty_certificate_changes_nothing(signer: Authority) -> None:
    """It is told and counted once, however often it is looked at, and the old one stays."""
    rotation = CertificateRotation(signer.issue())
    before = rotation.current
    files = signer.issue(not_after=yesterday())

    with capture_logs() as logs:
        looks = [rotation.look() for _ in range(3)]

    assert (looks, rotation.current is before) == ([False] * 3, True)
    assert (rotation.taken_total, rotation.refused_total) == (0, 1)
    (event,) = logs
    assert event["event"] == "tls.certificate_refused"
    assert event["detail"].startswith(f"{files.cert_file}: certificate has expired")


def test_faulty_certificate_may_become_fit(signer: Authority) -> None:
    """A key that comes a moment after its certificate is no fault for long."""
    rotation = CertificateRotation(signer.issue())
    late, early = signer.issue(), signer.issue(name="new")
    late.cert_file.write_bytes(early.cert_file.read_bytes())
    assert rotation.look() is False
    late.key_file.write_bytes(early.key_file.read_bytes())

    assert rotation.look() is True
    assert (rotation.taken_total, rotation.refused_total) == (1, 1)


def test_removed_files_change_nothing(signer: Authority) -> None:
    """A volume that is away for a moment takes nobody's certificate."""
    files = signer.issue()
    rotation = CertificateRotation(files)
    files.cert_file.unlink()

    assert rotation.look() is False
    assert rotation.refused_total == 1


def test_client_authorities_are_renewed(signer: Authority) -> None:
    """The callers' authority may change as well."""
    files = replace(signer.issue(), client_ca_file=signer.file)
    rotation = CertificateRotation(files)
    other = authority(signer.folder / "other")
    signer.file.write_bytes(other.file.read_bytes())

    assert rotation.look() is True
    assert len(rotation.current.context.get_ca_certs()) == 1


def test_faulty_certificate_stops_the_start(signer: Authority) -> None:
    """There is no old one that could stay."""
    files = signer.issue(not_after=yesterday())

    with pytest.raises(ValueError, match="expired"):
        CertificateRotation(files)


async def test_files_are_looked_at_again_and_again(signer: Authority) -> None:
    """Nobody has to ask for it."""
    rotation = CertificateRotation(signer.issue(), look_every_s=0.01)
    before = rotation.current
    looking = asyncio.create_task(rotation.run())
    signer.issue()

    async with asyncio.timeout(PATIENCE_S):
        while rotation.current is before:  # noqa: ASYNC110  nobody is told
            await asyncio.sleep(0.01)
    looking.cancel()


def test_files_are_looked_at_within_a_minute() -> None:
    """So that a renewed certificate is used long before the old one ends."""
    assert LOOK_EVERY_S <= 60
