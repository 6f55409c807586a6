"""The check of a pod template's file."""

from pathlib import Path

from service.doctor.deployment.pod_template import PodTemplateCheck
from tests.service.doctor.executor_pod import SOCKET, TEMPLATE
from tests.service.doctor.findings import gathered, severities


async def test_shipped_template_is_well() -> None:
    """What users copy has no finding."""
    assert set(severities(await gathered(PodTemplateCheck(TEMPLATE, SOCKET).findings()))) == {"ok"}


async def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """A file that cannot be read is told, with its reason."""
    (finding,) = await gathered(PodTemplateCheck(tmp_path / "none").findings())

    assert (finding.severity, finding.message) == (
        "error",
        "cannot be read: No such file or directory",
    )


async def test_pod_without_a_sidecar_is_an_error(tmp_path: Path) -> None:
    """Nothing is said of a container that is not there."""
    (tmp_path / "p.yaml").write_text("kind: Pod\n")

    assert severities(await gathered(PodTemplateCheck(tmp_path / "p.yaml").findings())) == ["error"]
