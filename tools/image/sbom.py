"""Bill of materials (SBOM, CycloneDX 1.6) of the image: `python -m tools.image.sbom [ARCHIVE]`.

Lists the Python distributions, the crates that they name, and the Debian packages. ARCHIVE is what
`docker export` writes, `-` is standard input; without it, Debian's Podman builds the image.
"""

import argparse
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import IO

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from service.version import own_version
from tools.image.podman import SIDECAR, Podman

_ENVIRONMENT = "opt/venv"
_PACKAGES = "var/lib/dpkg/status.d"
_RELEASE = "usr/lib/os-release"
_READ = (_ENVIRONMENT, _PACKAGES, _RELEASE)


def bill_of_materials(root: Path) -> str:
    """The bill of a root file system, as JSON; ordered by names."""
    image = Component(type=ComponentType.CONTAINER, name="sidelook", version=own_version())
    bom = Bom(components=[*_python(root), *_debian(root)])
    bom.metadata.component = image
    bom.register_dependency(image, list(bom.components))
    return JsonV1Dot6(bom).output_as_string(indent=2)


def _python(root: Path) -> Iterator[Component]:
    for folder in sorted(root.glob(f"{_ENVIRONMENT}/lib/python3.*/site-packages/*.dist-info")):
        yield _distribution(message_from_string((folder / "METADATA").read_text()), folder)
    lines = (root / _ENVIRONMENT / "pyvenv.cfg").read_text().splitlines()
    version = dict(line.split(" = ", 1) for line in lines)["version"]
    # Of the base image, whose Python may come from no package.
    yield _component(PackageURL("generic", name="python", version=version))


def _distribution(entry: Message, folder: Path) -> Component:
    name = re.sub(r"[-_.]+", "-", entry["Name"]).lower()
    component = _component(PackageURL("pypi", name=name, version=entry["Version"]))
    licence = entry["License-Expression"] or entry["License"] or ""
    if licence and "\n" not in licence:
        component.licenses.add(LicenseFactory().make_from_string(licence))
    for bill in sorted(folder.glob("sboms/*.json")):
        urls = (each["purl"] for each in json.loads(bill.read_text())["components"])
        component.components.update(_component(PackageURL.from_string(url)) for url in urls)
    return component


def _debian(root: Path) -> Iterator[Component]:
    lines = (root / _RELEASE).read_text().splitlines()
    named = dict(line.split("=", 1) for line in lines if "=" in line)
    suite = f"{named['ID']}-{named['VERSION_ID']}".replace('"', "")
    for file in sorted(root.glob(f"{_PACKAGES}/*")):
        yield _package(message_from_string(file.read_text()), suite)


def _package(entry: Message, suite: str) -> Component:
    name, version = entry["Package"], entry["Version"]
    qualifiers = {"arch": entry["Architecture"], "distro": suite}
    return _component(PackageURL("deb", suite.partition("-")[0], name, version, qualifiers))


def _component(url: PackageURL) -> Component:
    return Component(name=url.name, version=url.version, purl=url, bom_ref=url.to_string())


def extract(archive: IO[bytes], folder: Path) -> None:
    """Unpack from the archive of a root file system what the bill needs."""
    with tarfile.open(fileobj=archive, mode="r|*") as tar:
        for entry in tar:
            if entry.isreg() and entry.name.removeprefix("./").startswith(_READ):
                tar.extract(entry, folder, filter="data")


def main(arguments: argparse.Namespace) -> None:
    """Print the bill of an archive, or of the image that is built."""
    if arguments.archive:
        with tempfile.TemporaryDirectory() as folder, arguments.archive as archive:
            extract(archive, Path(folder))
            print(bill_of_materials(Path(folder)))
        return
    podman = Podman.fetched()
    podman.build_sidecar()
    with podman.mounted(SIDECAR) as root:
        print(bill_of_materials(root))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.image.sbom", description=__doc__)
    parser.add_argument("archive", nargs="?", type=argparse.FileType("rb"))
    return parser.parse_args()


if __name__ == "__main__":
    main(_arguments())
