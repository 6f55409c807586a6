"""The bill of materials: what it lists of a root file system, and from which archives."""

import io
import json
import tarfile
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from service.version import own_version
from tools.image.sbom import bill_of_materials, extract

PACKAGES = "opt/venv/lib/python3.11/site-packages"
CRATE = {"type": "library", "name": "serde", "version": "1.0", "purl": "pkg:cargo/serde@1.0"}
FILES = {
    "opt/venv/pyvenv.cfg": "home = /usr/local/bin\nversion = 3.11.9\n",
    f"{PACKAGES}/ruamel_yaml-0.19.1.dist-info/METADATA": (
        "Metadata-Version: 2.4\nName: ruamel.yaml\nVersion: 0.19.1\nLicense-Expression: MIT\n\nText"
    ),
    f"{PACKAGES}/ruamel_yaml-0.19.1.dist-info/sboms/crates.json": json.dumps(
        {"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [CRATE]}
    ),
    "var/lib/dpkg/status.d/libc6": "Package: libc6\nArchitecture: arm64\nVersion: 2.36-9\n",
    "usr/lib/os-release": 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n',
    "usr/bin/python3.11": "not needed",
}


def exported(files: dict[str, str]) -> io.BytesIO:
    """These files as an archive of a root file system."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    archive.seek(0)
    return archive


def test_bill_lists_all_packages(tmp_path: Path) -> None:
    """The bill is valid, and has distributions with their crates, the interpreter, and Debian's."""
    extract(exported(FILES), tmp_path)
    text = bill_of_materials(tmp_path)

    bill = json.loads(text)
    found = {each["purl"]: each for each in bill["components"]}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert (bill["metadata"]["component"]["type"], bill["metadata"]["component"]["version"]) == (
        *("container", own_version()),
    )
    assert sorted(found) == [
        "pkg:deb/debian/libc6@2.36-9?arch=arm64&distro=debian-12",
        "pkg:generic/python@3.11.9",
        "pkg:pypi/ruamel-yaml@0.19.1",
    ]
    (crate,) = found["pkg:pypi/ruamel-yaml@0.19.1"]["components"]
    assert (crate["name"], crate["purl"]) == ("serde", "pkg:cargo/serde@1.0")
    assert found["pkg:pypi/ruamel-yaml@0.19.1"]["licenses"] == [{"license": {"id": "MIT"}}]


def test_only_needed_files_are_unpacked(tmp_path: Path) -> None:
    """Files that the bill does not need stay in the archive."""
    extract(exported(FILES), tmp_path)

    assert not (tmp_path / "usr/bin").exists()
    assert (tmp_path / "usr/lib/os-release").exists()
