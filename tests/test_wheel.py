"""The wheel that users install: the client and the core, without the service."""

import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("lookup_core", "spark_client")

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built by pip with the installed packages."""
    folder = tmp_path_factory.mktemp("wheel")
    arguments = ["--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *arguments, str(ROOT)], check=True)
    (built,) = folder.iterdir()
    return built


def test_wheel_holds_core_and_client_only(wheel: Path) -> None:
    """All modules of the two packages are in the wheel, and no others."""
    expected = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }

    with ZipFile(wheel) as archive:
        modules = {name for name in archive.namelist() if name.endswith(".py")}

    assert modules == expected


def test_wheel_requires_three_packages(wheel: Path) -> None:
    """Besides Spark the client needs three packages."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())

    required = metadata.get_all("Requires-Dist") or []
    names = {text.split(">")[0] for text in required if "extra ==" not in text}
    assert names == {"numpy", "pyarrow", "websockets"}
    assert metadata["Name"] == "sidelook"
