"""The image's contents suffice: built by its own steps, run as the pod would run it."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from service.version import own_version
from tools.image.build import built_image
from tools.image.container import Container, Mount, runtime_default
from tools.image.image import ROOT, Dockerfile, Image
from tools.image.runtime import ContainerRuntime, RunningContainer, container_runtime
from tools.k8s.manifests import POD_TEMPLATE, read_manifest
from tools.processes.postgres_server import IS_BLOCKED, Database, running_postgres
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import until
from tools.rehearsal.pod_container import PodVolumes, demand_rights, pod_container

POD = read_manifest(POD_TEMPLATE)
LOOKUP = "/v1/dimensions/airports/lookup"
SIGKILLED = 128 + signal.SIGKILL
# What somebody who got in could build or fetch more with, and what only takes room.
UNWANTED = ("bin/pip*", "lib/python3.11/site-packages/pip", "lib/python3.11/site-packages/tests")
MOST_ADDED_MEGABYTES = 400
POSTGRES_SOCKET = ".s.PGSQL.5432"
CUSTOMERS = "/v1/dimensions/customers/lookup"
SLOW = {"keys": [1], "timeout_ms": 30_000}
SETTINGS = """dimensions:
  customers:
    source: {{ kind: postgres, dsn: "{dsn}", table: customers }}
    key: [id]
    columns: [name]
    timeout: 30s
"""
COMPILERS = ("usr/bin/gcc*", "usr/bin/cc", "usr/bin/make", "root/.cache/*", "var/cache/apt/*.bin")


@pytest.fixture(scope="module")
def runtime() -> Iterator[ContainerRuntime]:
    """A runtime of containers for this module."""
    with container_runtime() as runtime:
        yield runtime


@pytest.fixture(scope="module")
def image(runtime: ContainerRuntime) -> Image:
    """The image of the shipped Dockerfile."""
    return built_image(runtime, Dockerfile.parse((ROOT / "Dockerfile").read_text()))


@pytest.fixture
def sockets() -> Iterator[Path]:
    """The folder that the pod's containers share."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-sockets-"))
    os.chown(folder, 185, 185)
    yield folder
    shutil.rmtree(folder)


def as_in_the_pod(container: Container) -> Container:
    """With the rights and the memory that the pod template gives the sidecar."""
    manifest = {**POD["spec"]["initContainers"][0], "volumeMounts": []}
    nothing = PodVolumes(Path("/nonexistent"), group=185, config_maps={}, secrets={})
    return pod_container(container, manifest, pod=POD, volumes=nothing)


@contextmanager
def serving(
    runtime: ContainerRuntime,
    image: Image,
    sockets: Path,
    *,
    memory_bytes: int | None = None,
    database: Database | None = None,
) -> Iterator[tuple[SidecarProcess, RunningContainer]]:
    """The image with the pod's rights; without a database it serves what it serves by default."""
    sidecar = SidecarProcess(sockets)
    arguments, mounts = [], [Mount("/run/sidelook", sockets, is_read_only=False)]
    if database:
        dsn = replace(database, socket_folder="/mnt").dsn()
        (sockets / "sidelook.yaml").write_text(SETTINGS.format(dsn=dsn))
        arguments = ["serve", "--config", "/run/sidelook/sidelook.yaml"]
        # The socket alone: its folder lets nobody but the server in.
        source = Path(database.socket_folder) / POSTGRES_SOCKET
        mounts += [Mount("/mnt"), Mount(f"/mnt/{POSTGRES_SOCKET}", source, is_read_only=False)]
    container = as_in_the_pod(image.container(arguments))
    # The machine's network: here it listens on a port of loopback that is free.
    listen = {"SIDELOOK_LISTEN__HEALTH": f"127.0.0.1:{sidecar.health_port}"}
    container = replace(
        container,
        environ={**container.environ, "SIDELOOK_LISTEN__HTTP": "null", **listen},
        memory_bytes=memory_bytes or container.memory_bytes,
        mounts=mounts,
    )
    with runtime.running("sidecar", container) as running:
        until(lambda: not running.is_running or is_ready(sidecar))
        assert running.is_running, running.log.read_text()
        yield sidecar, running


def is_ready(sidecar: SidecarProcess) -> bool:
    """Whether it listens and takes lookups."""
    try:
        return sidecar.health("/readyz").status == 200
    except OSError:
        return False


def test_schema_needs_only_the_lock_file(runtime: ContainerRuntime, image: Image) -> None:
    """The configuration's JSON Schema is printed with what the image holds."""
    status, printed = runtime.output("schema", as_in_the_pod(image.container(["schema"])))

    assert status == 0, printed
    assert "dimensions" in json.loads(printed)["properties"]


def test_image_tells_its_version(runtime: ContainerRuntime, image: Image) -> None:
    """That of the project it was built from."""
    told = runtime.output("version", as_in_the_pod(image.container(["--version"])))

    assert told == (0, f"sidelook {own_version()}\n")


def test_image_serves_by_default(runtime: ContainerRuntime, image: Image, sockets: Path) -> None:
    """Without arguments the image answers lookups from its examples, and counts as healthy."""
    with serving(runtime, image, sockets) as (sidecar, running):
        answer = sidecar.post(LOOKUP, {"keys": ["JFK", "???"]})
        asked = [word.replace(":8816/", f":{sidecar.health_port}/") for word in image.health_check]
        health = running.execute(asked)

    assert answer.json()["outcomes"] == ["fetched", "missing"]
    assert (health.returncode, health.stderr) == (0, "")


def test_health_check_fails_without_a_sidecar(runtime: ContainerRuntime, image: Image) -> None:
    """The health check is no formality: nobody on the port is a failure."""
    asked = [word.replace(":8816/", ":1/") for word in image.health_check]
    container = replace(as_in_the_pod(image.container()), arguments=asked)

    status, printed = runtime.output("health", container)

    assert status == 1
    assert "Connection refused" in printed


def test_image_runs_with_the_pods_rights(
    runtime: ContainerRuntime, image: Image, sockets: Path
) -> None:
    """G10: user 185, no capability, filtered system calls, a root that nobody can write."""
    with serving(runtime, image, sockets) as (sidecar, running):
        demand_rights(running, as_in_the_pod(image.container()))

        assert sidecar.post(LOOKUP, {"keys": ["JFK"]}).status == 200


def test_filter_is_the_runtimes_own(runtime: ContainerRuntime, image: Image) -> None:
    """The profile really holds: a personality that it does not know is refused."""
    command = ["setarch", "--sticky-timeouts", "true"]
    free = replace(image.container(), arguments=command)

    filtered, _ = runtime.output("filtered", replace(free, seccomp=runtime_default()))
    unfiltered, printed = runtime.output("unfiltered", free)

    assert filtered != 0
    assert unfiltered == 0, printed


@pytest.fixture
def database() -> Iterator[Database]:
    """A PostgreSQL with a table of one row."""
    with running_postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE customers (id bigint PRIMARY KEY, name text)")
        database.insert("customers", [(1, "Ada")])
        yield database


def test_sigterm_drains(
    runtime: ContainerRuntime, image: Image, sockets: Path, *, database: Database
) -> None:
    """G4: a lookup that is under way at SIGTERM is answered, then the container ends with 0."""
    with serving(runtime, image, sockets, database=database) as (sidecar, running):
        with ThreadPoolExecutor() as asking:
            with database.locked("customers"):
                lookup = asking.submit(sidecar.post, CUSTOMERS, SLOW)
                until(lambda: database.query(f"SELECT {IS_BLOCKED}") == [(True,)])
                running.signal(signal.SIGTERM)
                until(lambda: "service.draining" in running.log.read_text())
            answer = lookup.result()
        status = running.wait()

    assert (answer.json()["outcomes"], status) == (["fetched"], 0)
    assert "service.stopped" in running.log.read_text()


def test_kill_in_the_drain_harms_no_successor(
    runtime: ContainerRuntime, image: Image, sockets: Path, *, database: Database
) -> None:
    """G5: a drain that is cut off leaves nothing that the next sidecar could not take over."""
    with (
        serving(runtime, image, sockets, database=database) as (sidecar, running),
        ThreadPoolExecutor() as asking,
    ):
        with database.locked("customers"):  # so that the drain does not end by itself
            lookup = asking.submit(sidecar.post, CUSTOMERS, SLOW)
            until(lambda: database.query(f"SELECT {IS_BLOCKED}") == [(True,)])
            running.signal(signal.SIGTERM)
            until(lambda: "service.draining" in running.log.read_text())
            running.signal(signal.SIGKILL)
            status = running.wait()
        with pytest.raises(ConnectionError):  # nobody answers it
            lookup.result()

    with serving(runtime, image, sockets, database=database) as (sidecar, _):
        answer = sidecar.post(CUSTOMERS, {"keys": [1]})

    assert (status, answer.json()["outcomes"]) == (SIGKILLED, ["fetched"])


def test_memory_limit_of_the_container_is_noticed(
    runtime: ContainerRuntime, image: Image, sockets: Path
) -> None:
    """The service reads the container's limit: the share that it reports grows as that shrinks."""
    shares = []
    for memory_bytes in (256 << 20, 1024 << 20):
        with serving(runtime, image, sockets, memory_bytes=memory_bytes) as (sidecar, _):
            until(lambda: used_share(sidecar) > 0)
            shares.append(used_share(sidecar))

    assert shares[0] > 2 * shares[1]


def used_share(sidecar: SidecarProcess) -> float:
    """How much of its memory the sidecar says is used."""
    (sample,) = (
        line
        for line in sidecar.health("/metrics").text.splitlines()
        if line.startswith("sidelook_memory_used_ratio ")
    )
    return float(sample.split()[1])


def test_nothing_unwanted_is_in_the_image(image: Image) -> None:
    """No client, no tests, no installer, no compiler, no cache; what the service reads alone."""
    packages = [path for pattern in UNWANTED for path in (image.root / "opt/venv").glob(pattern)]
    others = [path for pattern in COMPILERS for path in image.root.glob(pattern)]

    assert sorted(path.name for path in (image.root / "app").iterdir()) == [
        "examples",
        "lookup_core",
        "pyproject.toml",
        "service",
    ]
    assert packages + others == []


def test_image_stays_small(image: Image) -> None:
    """What the project adds to its base is bounded; most of it is Arrow."""
    megabytes = {name: round(image.megabytes(name)) for name in ("", "opt/venv", "app")}

    print(f"\nMB of the whole image, its packages, its code: {megabytes}")  # noqa: T201 -- to read

    assert megabytes["opt/venv"] + megabytes["app"] < MOST_ADDED_MEGABYTES
