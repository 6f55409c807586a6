"""What is said where something cannot be looked at with what was given."""

from service.doctor.plan import missing_configuration, unknown_sidecar
from tests.service.doctor.findings import gathered


async def test_unseen_stores_are_told() -> None:
    """One finding says what was not looked at, and how it is; it is no error."""
    (finding,) = await gathered(missing_configuration().findings())

    assert (finding.check, finding.severity) == ("configuration", "skipped")
    assert "neither it nor its stores and secrets were looked at" in finding.message
    assert finding.remedy.endswith("--config /etc/sidelook/sidelook.yaml")


async def test_unknown_sidecar_is_skipped() -> None:
    """It is told why it was not asked, and how it can be."""
    (finding,) = await gathered(unknown_sidecar("c.yaml").findings())

    assert (finding.check, finding.subject, finding.severity) == ("sidecar", "c.yaml", "skipped")
    assert finding.remedy == "correct it, or name the sidecar with --endpoint"
