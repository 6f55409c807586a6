"""The image, built by the steps of the Dockerfile and run with the rights of the pod."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.version import own_version
from tools.image.podman import LOCK_FILE, ROOT, SIDECAR, Podman
from tools.image.sbom import bill_of_materials
from tools.k8s.manifest_part import quantity
from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import until

POD = read_manifest(POD_TEMPLATE)
# The image has no shell.
RIGHTS_PROGRAM = """
import os, re
from pathlib import Path
print("user", os.getuid())
print("groups", *dict.fromkeys([os.getgid(), *os.getgroups()]))
status = Path("/proc/self/status").read_text()
print(*re.findall("^(?:CapBnd|NoNewPrivs|Seccomp):.*", status, re.MULTILINE), sep="\\n")
for limit in "memory.max", "memory/memory.limit_in_bytes":
    file = Path("/sys/fs/cgroup", limit)
    print(file.read_text() if file.exists() else "")
try:
    Path("/usr/touched").touch()
except OSError as error:
    print(error.strerror)
"""
FILTERED = 2  # the kernel's number for a seccomp filter
LOOKUP = "/v1/dimensions/airports/lookup"
MAX_MEGABYTES = 250
PROGRAMS = {
    "opt/venv/bin": {"python", "python3", "python3.11", "sidelook"},
    "usr/bin": {"python3", "python3.11"},
    "usr/local/bin": {"python"},
}
# Tools for an intruder, and files that only take space.
UNWANTED = (
    "**/pip",
    "**/*.pyx",
    "**/tests",
    "**/ensurepip",
    "**/*arrow_flight*",
    "root",
    "var/cache",
)


# What the image is built from.
SENT = ("Dockerfile", ".dockerignore", LOCK_FILE, "tools/image/root_file_system.py")
CODE = ("lookup_core", "service")
NOT_SENT = (
    *(".git/config", ".venv/bin/python", ".env", "service/.env", "examples/.env.local"),
    *("examples/tls/server.key", "service/server.pem", "service/__pycache__/app.pyc"),
    *("service/sidelook.sock", "service/sidelook.sock.lock", "k8s/secret.example.yaml"),
    *("tests/conftest.py", "tools/debian.py", "tools/image/podman.py", "requirements/dev.txt"),
)


@pytest.fixture(scope="module")
def podman() -> Podman:
    """An engine with the image of the shipped Dockerfile."""
    podman = Podman.fetched()
    podman.build_sidecar()
    return podman


@pytest.fixture(scope="module")
def root(podman: Podman) -> Iterator[Path]:
    """The root file system of the image."""
    with podman.mounted(SIDECAR) as root:
        yield root


@pytest.fixture(scope="module")
def config(podman: Podman) -> dict[str, Any]:
    """The image's configuration."""
    (described,) = json.loads(podman.output("image", "inspect", SIDECAR))
    configured: dict[str, Any] = described["Config"]
    return {**configured, "Healthcheck": described["Healthcheck"]}


@pytest.fixture
def sockets() -> Iterator[Path]:
    """The folder that the containers of the pod share."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-sockets-"))
    os.chown(folder, 185, 185)
    yield folder
    shutil.rmtree(folder)


def memory_limit() -> int:
    """The limit of the pod template, in bytes."""
    (sidecar,) = POD["spec"]["initContainers"]
    limit = quantity(sidecar["resources"]["limits"]["memory"])
    assert limit is not None
    return int(limit)


def rights_of_the_pod(memory_bytes: int) -> list[str]:
    """The rights of the pod template, and a memory limit, as options of the engine."""
    (sidecar,) = POD["spec"]["initContainers"]
    security = {**POD["spec"]["securityContext"], **sidecar["securityContext"]}
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["readOnlyRootFilesystem"]
    assert not security["allowPrivilegeEscalation"]
    return [
        *("--read-only", "--read-only-tmpfs=false", "--cap-drop=all"),
        f"--user={security['runAsUser']}:{security['runAsGroup']}",
        f"--group-add={security['fsGroup']}",
        "--security-opt=no-new-privileges",
        *(f"--memory={memory_bytes}", f"--memory-swap={memory_bytes}"),
    ]


def missing_rights(podman: Podman, container: str) -> list[str]:
    """The expected user, rights and limits that a process of the container does not have."""
    found = podman.output("exec", container, "python", "-c", RIGHTS_PROGRAM).splitlines()
    expected = [
        *("user 185", "groups 185", "NoNewPrivs:\t1", f"CapBnd:\t{'0' * 16}"),
        *(f"Seccomp:\t{FILTERED}", str(memory_limit()), "Read-only file system"),
    ]
    return [line for line in expected if line not in found]


@contextmanager
def serving(
    podman: Podman, sockets: Path, memory_bytes: int
) -> Iterator[tuple[SidecarProcess, str]]:
    """The image without arguments, with the rights of the pod; its container."""
    sidecar = SidecarProcess(sockets)
    # The network is the machine's: the health listener has a free port of loopback.
    listen = f"--env=SIDELOOK_LISTEN__HEALTH=127.0.0.1:{sidecar.health_port}"
    options = ["--env=SIDELOOK_LISTEN__HTTP=null", listen, f"--volume={sockets}:/run/sidelook"]
    with podman.running(*rights_of_the_pod(memory_bytes), *options, SIDECAR) as container:

        def has_ended() -> bool:
            status = podman.output("inspect", "--format={{.State.Status}}", container)
            return status != "running"

        until(lambda: is_ready(sidecar) or has_ended())
        assert not has_ended(), podman.output("logs", container)
        yield sidecar, container


def is_ready(sidecar: SidecarProcess) -> bool:
    """Whether the sidecar is ready."""
    try:
        return sidecar.health("/readyz").status == 200
    except OSError:
        return False


def test_image_serves_by_default(podman: Podman, config: dict[str, Any], sockets: Path) -> None:
    """G10: with the pod's rights, the image serves, and health check and command succeed."""
    with serving(podman, sockets, memory_limit()) as (sidecar, container):
        missing = missing_rights(podman, container)
        answer = sidecar.post(LOOKUP, {"keys": ["JFK", "???"]})
        _, *check = config["Healthcheck"]["Test"]
        command = [word.replace(":8816/", f":{sidecar.health_port}/") for word in check]
        podman.output("exec", container, *command)
        podman.output("exec", container, "sidelook", "lookup", "airports", "JFK")
        podman.output("kill", "--signal=TERM", container)
        status = podman.output("wait", container)

    assert missing == []
    assert answer.json()["outcomes"] == ["fetched", "missing"]
    assert status == "0"


def test_commands_run_in_the_image(podman: Podman, config: dict[str, Any]) -> None:
    """The packages of the lock file suffice for the commands; the version is the project's."""
    once = ("run", "--rm", *rights_of_the_pod(memory_limit()))
    _, program, *absent = (word.replace(":8816/", ":1/") for word in config["Healthcheck"]["Test"])

    schema = podman.output(*once, SIDECAR, "schema")
    version = podman.output(*once, SIDECAR, "--version")
    health = podman.execute(*once, f"--entrypoint={program}", SIDECAR, *absent)

    assert "dimensions" in json.loads(schema)["properties"]
    assert version == f"sidelook {own_version()}"
    assert health.returncode == 1


def test_process_receives_signals_and_needs_no_root(config: dict[str, Any]) -> None:
    """No shell is between the engine and the process, which has the ids of the pod template."""
    variables = dict(each.split("=", 1) for each in config["Env"])

    assert (config["Entrypoint"], config["Cmd"]) == (["python", "-m", "service"], ["serve"])
    assert (config["User"], config["StopSignal"]) == ("185:185", "SIGTERM")
    assert variables["PYTHONDONTWRITEBYTECODE"] == "1"
    assert variables["SIDELOOK_LISTEN__UNIX"] == "/run/sidelook/sidelook.sock"
    assert config["Labels"]["org.opencontainers.image.version"] == own_version()


def test_build_context_has_nothing_else(podman: Podman, tmp_path: Path) -> None:
    """Secrets, temporary files and what the service does not need are not in the build context."""
    for name in (*NOT_SENT, *SENT, "service/app.py"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")

    podman.build("localhost/context:1", tmp_path)

    with podman.mounted("localhost/context:1") as copied:
        files = {str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file()}
    assert files == {LOCK_FILE, "tools/image/root_file_system.py", "service/app.py"}


def test_image_holds_the_service_only(root: Path) -> None:
    """The image has no shell, package manager, client, test, installer or compiler."""
    programs = {folder: names(root / folder) for folder in PROGRAMS}
    unwanted = [path for pattern in UNWANTED for path in root.glob(pattern)]

    assert programs == PROGRAMS
    assert not any(names(root / folder) for folder in ("sbin", "usr/sbin", "usr/local/sbin"))
    assert names(root / "app") == {"lookup_core", "service"}
    assert unwanted == []


def names(folder: Path) -> set[str]:
    """The names in a folder; none if there is no such folder."""
    return {path.name for path in folder.glob("*")}


def test_image_stays_small(root: Path) -> None:
    """All files together have at most 250 MB."""
    files = [path for path in root.rglob("*") if not path.is_dir()]

    assert sum(path.lstat().st_size for path in files) <= MAX_MEGABYTES * 1e6


def test_code_is_compiled_and_no_file_is_the_users(root: Path) -> None:
    """User 185 owns the folder of the socket only, and start-up compiles nothing."""
    sources = [path for name in ("app", "opt") for path in (root / name).rglob("*.py")]
    compiled = [path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc" for path in sources]
    owned = [path for path in root.rglob("*") if path.lstat().st_uid]

    assert sources
    assert [path for path in compiled if not path.exists()] == []
    assert owned == [root / "run/sidelook"]
    assert owned[0].stat().st_mode & 0o777 == 0o770


def test_packages_keep_their_licences(root: Path) -> None:
    """Each package of Debian has an entry for scanners, and its licence."""
    packages = names(root / "var/lib/dpkg/status.d")
    documents = root / "usr/share/doc"

    assert packages >= {"libc6", "libssl3", "tzdata"}
    assert [name for name in packages if not (documents / name / "copyright").exists()] == []


def test_bill_lists_the_locked_versions(root: Path) -> None:
    """The bill of the image has the versions of the lock file, and the packages of the loader."""
    bill = json.loads(bill_of_materials(root))

    found = {each["purl"] for each in bill["components"] if each["purl"].startswith("pkg:pypi/")}
    lines = (ROOT / LOCK_FILE).read_text().splitlines()
    matches = [
        re.match(r"([\w-]+)(?:\[.*])?==(\S+)", line) for line in lines if "== 'win32'" not in line
    ]
    assert found == {f"pkg:pypi/{match[1]}@{match[2]}" for match in matches if match}
    assert {"libc6", "libstdc++6", "zlib1g"} <= {
        each["name"] for each in bill["components"] if each["purl"].startswith("pkg:deb/")
    }


def test_builds_are_reproducible(podman: Podman, tmp_path: Path) -> None:
    """Builds with other downloads, in another folder, have equal layers; other code has others."""
    for path in SENT:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    for path in CODE:
        shutil.copytree(ROOT / path, tmp_path / path)

    podman.build_sidecar(tmp_path, "--no-cache", name="localhost/sidelook:again")
    module = tmp_path / "service" / "app.py"
    module.write_text(f"{module.read_text()}# changed\n")
    podman.build_sidecar(tmp_path, name="localhost/sidelook:changed")

    names = (SIDECAR, "localhost/sidelook:again", "localhost/sidelook:changed")
    first, again, changed = (
        podman.output("image", "inspect", "--format={{.RootFS.Layers}}", each) for each in names
    )
    assert first == again != changed
