"""What is said where no configuration was named."""

from service.doctor.missing_configuration_check import MissingConfigurationCheck
from tests.service.doctor.findings import gathered


async def test_unseen_stores_are_told() -> None:
    """One finding says what was not looked at, and how it is; it is no error."""
    (finding,) = await gathered(MissingConfigurationCheck().findings())

    assert (finding.check, finding.severity) == ("configuration", "skipped")
    assert "neither it nor its stores and secrets were looked at" in finding.message
    assert finding.remedy.endswith("--config /etc/sidelook/sidelook.yaml")
