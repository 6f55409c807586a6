"""The image, built by the steps of the Dockerfile and run with the rights of the pod."""

import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from service.version import own_version
from tools.image.archive import write_archive
from tools.image.build import PYTHON, Context, built_image
from tools.image.container import Container, Mount, runtime_default
from tools.image.image import LOCK_FILE, ROOT, Dockerfile, Image
from tools.image.runtime import ContainerRuntime, RunningContainer, container_runtime
from tools.image.sbom import bill_of_materials
from tools.k8s.manifest_part import quantity
from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.sidecar_process import SidecarFigures, SidecarProcess
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


@pytest.fixture(scope="module")
def runtime() -> Iterator[ContainerRuntime]:
    """A container runtime for this module."""
    with container_runtime() as runtime:
        yield runtime


@pytest.fixture(scope="module")
def image(runtime: ContainerRuntime) -> Image:
    """The image of the shipped Dockerfile."""
    return built_image(runtime, Dockerfile.parse((ROOT / "Dockerfile").read_text()))


@pytest.fixture
def sockets() -> Iterator[Path]:
    """The folder that the containers of the pod share."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-sockets-"))
    os.chown(folder, 185, 185)
    yield folder
    shutil.rmtree(folder)


def as_in_the_pod(container: Container) -> Container:
    """The container with the rights and the memory limit of the pod template."""
    (sidecar,) = POD["spec"]["initContainers"]
    security = {**POD["spec"]["securityContext"], **sidecar["securityContext"]}
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    limit = quantity(sidecar["resources"]["limits"]["memory"])
    assert limit is not None
    return replace(
        container,
        user=security["runAsUser"],
        group=security["runAsGroup"],
        groups=[security["fsGroup"]],
        capabilities=(),
        is_root_read_only=security["readOnlyRootFilesystem"],
        may_gain_privileges=security["allowPrivilegeEscalation"],
        memory_bytes=int(limit),
        seccomp=runtime_default(),
    )


def missing_rights(running: RunningContainer, container: Container) -> list[str]:
    """The expected user, rights and limits that a process of the container does not have."""
    found = running.execute(["python", "-c", RIGHTS_PROGRAM]).stdout.splitlines()
    groups = dict.fromkeys([container.group, *container.groups])
    expected = [
        f"user {container.user}",
        f"groups {' '.join(map(str, groups))}",
        "NoNewPrivs:\t1",
        f"CapBnd:\t{'0' * 16}",
        f"Seccomp:\t{FILTERED}",
        str(container.memory_bytes),
        "Read-only file system",
    ]
    return [line for line in expected if line not in found]


@contextmanager
def serving(
    runtime: ContainerRuntime, image: Image, sockets: Path, memory_bytes: int | None = None
) -> Iterator[tuple[SidecarProcess, RunningContainer]]:
    """The image without arguments, with the rights of the pod."""
    sidecar = SidecarProcess(sockets)
    container = as_in_the_pod(image.container())
    # The network is the machine's: the health listener has a free port of loopback.
    listen = {"SIDELOOK_LISTEN__HEALTH": f"127.0.0.1:{sidecar.health_port}"}
    container = replace(
        container,
        environ={**container.environ, "SIDELOOK_LISTEN__HTTP": "null", **listen},
        memory_bytes=memory_bytes or container.memory_bytes,
        mounts=[Mount("/run/sidelook", sockets, is_read_only=False)],
    )
    with runtime.running("sidecar", container) as running:
        until(lambda: not running.is_running or is_ready(sidecar))
        assert running.is_running, running.log.read_text()
        yield sidecar, running


def is_ready(sidecar: SidecarProcess) -> bool:
    """Whether the sidecar is ready."""
    try:
        return sidecar.health("/readyz").status == 200
    except OSError:
        return False


def test_image_serves_by_default(runtime: ContainerRuntime, image: Image, sockets: Path) -> None:
    """G10: with the pod's rights, the image serves, and health check and command succeed."""
    with serving(runtime, image, sockets) as (sidecar, running):
        missing = missing_rights(running, as_in_the_pod(image.container()))
        answer = sidecar.post(LOOKUP, {"keys": ["JFK", "???"]})
        command = [
            word.replace(":8816/", f":{sidecar.health_port}/") for word in image.health_check
        ]
        health = running.execute(command)
        found = running.execute(["sidelook", "lookup", "airports", "JFK"])
        running.signal(signal.SIGTERM)
        status = running.wait()

    assert missing == []
    assert answer.json()["outcomes"] == ["fetched", "missing"]
    assert (health.returncode, health.stderr) == (0, "")
    assert (found.returncode, found.stderr) == (0, "")
    assert status == 0


def test_commands_run_in_the_image(runtime: ContainerRuntime, image: Image) -> None:
    """The packages of the lock file suffice for the commands; the version is the project's."""
    commands = {name: as_in_the_pod(image.container([name])) for name in ("schema", "--version")}
    absent = [word.replace(":8816/", ":1/") for word in image.health_check]

    schema = runtime.output("schema", commands["schema"])
    version = runtime.output("version", commands["--version"])
    health, _ = runtime.output("health", replace(commands["schema"], arguments=absent))

    assert schema[0] == 0, schema[1]
    assert "dimensions" in json.loads(schema[1])["properties"]
    assert version == (0, f"sidelook {own_version()}\n")
    assert health == 1


def test_memory_limit_of_the_container_is_noticed(
    runtime: ContainerRuntime, image: Image, sockets: Path
) -> None:
    """The service reads the limit of the container: its reported share depends on the limit."""
    shares = []
    for memory_bytes in (256 << 20, 1024 << 20):
        with serving(runtime, image, sockets, memory_bytes) as (sidecar, _):
            until(lambda: used_share(sidecar) > 0)
            shares.append(used_share(sidecar))

    assert shares[0] > 2 * shares[1]


def used_share(sidecar: SidecarProcess) -> float:
    """The reported share of used memory."""
    return SidecarFigures(sidecar).read()["sidelook_memory_used_ratio"]


def test_image_holds_the_service_only(image: Image) -> None:
    """The image has no shell, package manager, client, test, installer or compiler."""
    programs = {folder: names(image.root / folder) for folder in PROGRAMS}
    unwanted = [path for pattern in UNWANTED for path in image.root.glob(pattern)]

    assert programs == PROGRAMS
    assert not any(names(image.root / folder) for folder in ("sbin", "usr/sbin", "usr/local/sbin"))
    assert names(image.root / "app") == {"lookup_core", "service"}
    assert unwanted == []


def names(folder: Path) -> set[str]:
    """The names in a folder; none if there is no such folder."""
    return {path.name for path in folder.glob("*")}


def test_image_stays_small(image: Image) -> None:
    """All files together have at most 250 MB."""
    assert image.megabytes() <= MAX_MEGABYTES


def test_code_is_compiled_and_no_file_is_the_users(image: Image) -> None:
    """User 185 owns the folder of the socket only, and start-up compiles nothing."""
    sources = [path for name in ("app", "opt") for path in (image.root / name).rglob("*.py")]
    compiled = [path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc" for path in sources]
    owned = [path for path in image.root.rglob("*") if path.lstat().st_uid]

    assert sources
    assert [path for path in compiled if not path.exists()] == []
    assert owned == [image.root / "run/sidelook"]
    assert owned[0].stat().st_mode & 0o777 == 0o770


def test_packages_keep_their_licences(image: Image) -> None:
    """Each package of Debian has an entry for scanners, and its licence."""
    packages = names(image.root / "var/lib/dpkg/status.d")
    documents = image.root / "usr/share/doc"

    assert packages >= {"libc6", "libssl3", "tzdata"}
    assert [name for name in packages if not (documents / name / "copyright").exists()] == []


def test_bill_lists_the_locked_versions(image: Image) -> None:
    """The bill of the image has the versions of the lock file, and the packages of the loader."""
    bill = json.loads(bill_of_materials(image.root))

    found = {each["purl"] for each in bill["components"] if each["purl"].startswith("pkg:pypi/")}
    lines = (ROOT / LOCK_FILE).read_text().splitlines()
    matches = [
        re.match(r"([\w-]+)(?:\[.*])?==(\S+)", line) for line in lines if "== 'win32'" not in line
    ]
    assert found == {f"pkg:pypi/{match[1]}@{match[2]}" for match in matches if match}
    assert {"libc6", "libstdc++6", "zlib1g"} <= {
        each["name"] for each in bill["components"] if each["purl"].startswith("pkg:deb/")
    }


def test_builds_are_reproducible(
    runtime: ContainerRuntime, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds with other downloads, in another folder, have one digest; other code has another."""
    context = Context(PYTHON.archive())
    with tempfile.TemporaryDirectory(prefix="sidelook-builds-") as folder:
        cache = Path(folder, "sidelook")
        cache.mkdir()
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        for layer in context.base.parent.glob("layer-*"):
            shutil.copy(layer, cache)  # the packages as they were installed for another image
        first = digest(built_image(runtime, image.dockerfile, context))
        forget(cache)
        second = digest(built_image(runtime, image.dockerfile, context))
        changed = replace(context, folder=changed_tree(image.dockerfile, Path(folder, "tree")))
        third = digest(built_image(runtime, image.dockerfile, changed))

    assert first == second
    assert first != third


def forget(cache: Path) -> None:
    """Remove images and installed packages, so that the next build starts without them."""
    for image in cache.glob("image-*/"):
        shutil.rmtree(image)
    for layer in cache.glob("*.tar"):
        layer.unlink()


def digest(image: Image) -> str:
    """The digest of an image that no container has used: mount points would be new folders."""
    archive = image.root.with_suffix(".tar")
    return write_archive(image.root, archive, name="sidelook", config=image.config())


def changed_tree(dockerfile: Dockerfile, folder: Path) -> Path:
    """The build context with a comment added to one module."""
    for path in (".dockerignore", *dockerfile.copied_from_tree()):
        copied = folder / path
        copied.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, copied)
        else:
            shutil.copy(ROOT / path, copied)
    module = folder / "service" / "app.py"
    module.write_text(f"{module.read_text()}# changed\n")
    return folder
