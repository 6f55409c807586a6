"""The distributions of client and sidecar: contents, metadata, and use from wheels alone."""

import os
import re
import subprocess
import sys
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from service.version import own_version
from tools.processes.sidecar_process import SidecarProcess

ROOT = Path(__file__).parents[2]
CLIENT = ("lookup_core", "sidelook", "spark_client")
NOT_IN_PACKAGE = {"service/LICENSE", "service/README.md", "service/pyproject.toml"}
UV = Path(sys.executable).with_name("uv")
LOCKED = ROOT / "requirements" / "dev.txt"
CONFIG = """
dimensions:
  orders:
    source: { kind: postgres, dsn: "postgresql://localhost/shop", table: orders }
    key: [id]
"""
OF_CHECKOUT = ("PYSPARK_", "PYTHONPATH", "SIDELOOK_", "SPARK_")  # prefixes of variables
JOIN = """
from pyspark.sql import SparkSession
from sidelook import Sidecar

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
join = Sidecar("unix://SOCKET").lookup_join("airports", on="faa", columns=["tzone"])
found = spark.createDataFrame([("JFK",), ("???",)], "faa string").transform(join).collect()
print([tuple(row) for row in found])
"""


def environ(programs: Path) -> dict[str, str]:
    """The variables of a shell that activated an environment and knows nothing of this checkout."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(OF_CHECKOUT)}
    return kept | {"PATH": f"{programs}{os.pathsep}{kept['PATH']}"}


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """The output of a program with these environment variables; asserts success."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        env=environ(Path(command[0]).parent) | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All distributions, as `make dist` builds them: each wheel from its source distribution."""
    built = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "service"):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", built, project, cwd=built)
    return built


@pytest.fixture(scope="module")
def client(distributions: Path) -> Path:
    """The wheel of the client."""
    return distributions / f"sidelook-{own_version()}-py3-none-any.whl"


@pytest.fixture(scope="module")
def sidecar(distributions: Path) -> Path:
    """The wheel of the sidecar."""
    return distributions / f"sidelook_service-{own_version()}-py3-none-any.whl"


def environment(folder: Path, *requirements: str) -> Path:
    """The programs of a new environment with these requirements only, in the locked versions."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder, cwd=folder.parent)
    if requirements:
        options = ("--python", folder, "--constraint", LOCKED)
        run(UV, "pip", "install", "--quiet", *options, *requirements, cwd=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def client_programs(client: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of a driver."""
    folder = tmp_path_factory.mktemp("client")
    return environment(folder / "environment", f"sidelook[spark] @ {client.as_uri()}")


@pytest.fixture(scope="module")
def sidecar_programs(client: Path, sidecar: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment of a sidecar."""
    folder = tmp_path_factory.mktemp("sidecar")
    needed = f"sidelook @ {client.as_uri()}", f"sidelook-service @ {sidecar.as_uri()}"
    return environment(folder / "environment", *needed)


def files_of(wheel: Path) -> set[str]:
    """The files of a wheel's packages."""
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def metadata_of(wheel: Path) -> Message:
    """The metadata of a wheel."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def tracked(*packages: str) -> set[str]:
    """The files of these packages that the repository has."""
    return set(run("git", "ls-files", *packages, cwd=ROOT).split())


def test_client_wheel_has_no_service(client: Path) -> None:
    """The client's wheel has core, client and the public package, and nothing else."""
    assert files_of(client) == tracked(*CLIENT) - {"sidelook/README.md"}


def test_sidecar_wheel_has_all_files(sidecar: Path) -> None:
    """The sidecar's wheel has its modules, status page and example, and nothing else."""
    assert files_of(sidecar) == tracked("service") - NOT_IN_PACKAGE


def test_client_requires_three_packages(client: Path) -> None:
    """Besides Spark the client needs three packages."""
    required = metadata_of(client).get_all("Requires-Dist") or []

    names = {text.split(">")[0] for text in required if "extra ==" not in text}
    assert names == {"numpy", "pyarrow", "websockets"}


def test_sidecar_requires_client_of_same_version(client: Path, sidecar: Path) -> None:
    """Both distributions have one version, and the sidecar installs no other client."""
    of_client, of_sidecar = metadata_of(client), metadata_of(sidecar)

    assert (of_client["Name"], of_sidecar["Name"]) == ("sidelook", "sidelook-service")
    assert of_client["Version"] == of_sidecar["Version"] == own_version()
    assert f"sidelook=={own_version()}" in of_sidecar.get_all("Requires-Dist", [])


def test_index_accepts_the_descriptions(distributions: Path) -> None:
    """`twine check` has no error and no warning for wheels and source distributions."""
    files = sorted(distributions.iterdir())

    assert [file.suffix for file in files] == [".whl", ".gz", ".whl", ".gz"]
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=distributions)


def test_readme_installs_the_wheels(distributions: Path, tmp_path: Path) -> None:
    """The README's commands install the client with Spark, and the sidecar with the client."""
    commands = re.findall(
        r"^pip install .*dist/.*$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    programs = environment(tmp_path / "environment")
    options = f"--dry-run --python {programs.parent} --constraint {LOCKED}"
    (tmp_path / "dist").symlink_to(distributions)

    installed = [
        run(
            "/bin/bash", "-c", f'pip() {{ {UV} pip "$@" {options} 2>&1; }}; {command}', cwd=tmp_path
        )
        for command in commands
    ]

    packages = [set(re.findall(r"^ \+ ([\w-]+)", text, re.MULTILINE)) for text in installed]
    of_client, of_sidecar = packages
    assert {"sidelook", "pyspark", "pandas", "pyarrow"} <= of_client
    assert "sidelook-service" not in of_client
    assert {"sidelook", "sidelook-service", "aiohttp"} <= of_sidecar
    assert "pyspark" not in of_sidecar


def test_commands_run_in_an_empty_folder(sidecar_programs: Path, folder: Path) -> None:
    """The command has version, help in its own name, completion; the module is the same program."""
    sidelook, python = sidecar_programs / "sidelook", sidecar_programs / "python"
    config = folder / "sidelook.yaml"
    config.write_text(CONFIG)
    version = f"sidelook {own_version()}\n"

    assert run(sidelook, "--version", cwd=folder) == version
    assert run(python, "-m", "service", "--version", cwd=folder) == version
    assert run(python, "-m", "service", "--help", cwd=folder).startswith(
        "Usage: sidelook [OPTIONS]"
    )
    assert run(sidelook, "--help", cwd=folder).startswith("Usage: sidelook [OPTIONS]")
    asked = {"_SIDELOOK_COMPLETE": "complete_bash", "COMP_WORDS": "sidelook st", "COMP_CWORD": "1"}
    assert run(sidelook, cwd=folder, **asked) == "status\n"
    assert run(sidelook, "check-config", config, cwd=folder) == "ok: 1 dimension\n"


def test_spark_job_runs_from_wheels(
    client_programs: Path, sidecar_programs: Path, folder: Path, tmp_path: Path
) -> None:
    """A sidecar without configuration serves its example to a command and to a Spark job."""
    sidelook = sidecar_programs / "sidelook"
    serve = (str(sidelook), "serve")
    process = SidecarProcess(
        tmp_path, command=serve, environ=environ(sidecar_programs), code=folder
    )
    endpoint = f"unix://{process.socket}"

    with process.running():
        found = run(
            sidelook, "lookup", "airports", "JFK", "--json", "--endpoint", endpoint, cwd=folder
        )
        script = JOIN.replace("SOCKET", str(process.socket))
        joined = run(client_programs / "python", "-c", script, cwd=folder)

    assert '"outcomes": ["fetched"]' in found
    assert joined == "[('JFK', 'America/New_York'), ('???', None)]\n"
