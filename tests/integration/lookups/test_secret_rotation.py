"""Rotation of tokens and passwords in a projected Kubernetes volume, without a restart (G11)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.integration.sidecars import postgres_sidecar
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import Reply, SidecarProcess
from tools.processes.until import until

LOOKUP = "/v1/dimensions/{}/lookup"


def role(database: Database) -> str:
    """A role that needs its password."""
    return f"locked_{database.name}"


def sessions_ended(user: str) -> str:
    """The statement that ends all sessions of a role, and waits for their end."""
    return f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{user}'"


@dataclass(slots=True)
class ProjectedVolume:
    """A folder of symbolic links into a version folder that is swapped atomically."""

    folder: Path
    versions: int = 0

    def put(self, **secrets: str) -> None:
        """Replace all secrets at once, as the kubelet does."""
        self.versions += 1
        version = self.folder / f"..version_{self.versions}"
        version.mkdir(parents=True)
        for name, text in secrets.items():
            (version / name).write_text(text)
            (version / name).chmod(0o440)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        coming = self.folder / "..data_tmp"
        coming.symlink_to(version.name)
        coming.replace(self.folder / "..data")


@pytest.fixture
def volume(tmp_path: Path, database: Database) -> ProjectedVolume:
    """A volume with the token `first` and the first password of the role."""
    database.execute(
        "CREATE TABLE customers (id int8 PRIMARY KEY, name text)",
        "INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 100) AS n",
        f"CREATE ROLE {role(database)} LOGIN PASSWORD 'first'",
        f"GRANT SELECT ON customers TO {role(database)}",
    )
    volume = ProjectedVolume(tmp_path / "secrets")
    volume.put(dsn=database.dsn(user=role(database), password="first"), token="first")
    return volume


@pytest.fixture
def sidecar(tmp_path: Path, volume: ProjectedVolume) -> Iterator[SidecarProcess]:
    """A sidecar that reads these secrets."""
    customers = {
        "source": {
            "kind": "postgres",
            "table": "customers",
            "dsn_file": str(volume.folder / "dsn"),
        },
        "cache": {"mode": "none"},
    }
    token = {"token_file": str(volume.folder / "token")}
    dimensions = {"customers": customers, "clients": customers}  # with one pool
    sidecar = postgres_sidecar(tmp_path, "", dimensions, auth=token)
    with sidecar.running():
        yield sidecar


def reply_to(sidecar: SidecarProcess, token: str, dimension: str = "customers") -> Reply:
    """The reply to a lookup with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    return sidecar.post(LOOKUP.format(dimension), {"keys": [7]}, headers=headers)


def is_fetched(sidecar: SidecarProcess, dimension: str) -> bool:
    """Whether a lookup with the second token gets its row."""
    return bool(reply_to(sidecar, "second", dimension).json()["outcomes"] == ["fetched"])


def test_rotated_secrets_count(
    sidecar: SidecarProcess, volume: ProjectedVolume, database: Database
) -> None:
    """A refused password fails all lookups with `backend_auth`; rotated secrets are accepted."""
    assert reply_to(sidecar, "first").json()["outcomes"] == ["fetched"]
    assert reply_to(sidecar, "second").status == 401

    database.execute(
        f"ALTER ROLE {role(database)} PASSWORD 'second'", sessions_ended(role(database))
    )
    refused = [reply_to(sidecar, "first").json() for _ in range(4)]
    volume.put(dsn=database.dsn(user=role(database), password="second"), token="second")

    assert [each["errors"]["0"]["code"] for each in refused] == ["backend_auth"] * 4
    until(lambda: reply_to(sidecar, "second").status == 200)
    for name in ("customers", "clients"):
        until(partial(is_fetched, sidecar, name))
    assert reply_to(sidecar, "first").status == 401
