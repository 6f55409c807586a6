"""Secrets that are rotated as Kubernetes does it: the new one counts, and nobody is restarted."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SERVE, SidecarProcess, clean_environ, free_port
from tools.processes.until import until

WITHIN_S = 60.0
LOOKUP = "/v1/dimensions/customers/lookup"


def role(database: Database) -> str:
    """One that needs its password."""
    return f"locked_{database.name}"


def sessions_ended(user: str) -> str:
    """The statement that ends all sessions of a role, and waits until they are gone."""
    return f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{user}'"


@dataclass(slots=True)
class ProjectedVolume:
    """A folder of secrets whose files are links into one that is swapped as a whole."""

    folder: Path
    versions: int = 0

    def put(self, **secrets: str) -> None:
        """Let these be the secrets from one moment to the next, as the kubelet does."""
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
    """With the token `first`, and the role's first password."""
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
    """One that runs on these secrets."""
    source = {"kind": "postgres", "table": "customers", "dsn_file": str(volume.folder / "dsn")}
    customers = {"source": source, "key": ["id"], "cache": {"mode": "none"}}
    config = {
        "auth": {"token_file": str(volume.folder / "token")},
        "dimensions": {"customers": customers},
    }
    path = tmp_path / "sidelook.yaml"
    path.write_text(json.dumps(config))
    process = SidecarProcess(
        tmp_path, (*SERVE, "--config", str(path)), clean_environ(), health_port=free_port()
    )
    with process.running():
        yield process


def status(sidecar: SidecarProcess, token: str) -> int:
    """Of a lookup with this token."""
    headers = {"Authorization": f"Bearer {token}"}
    return sidecar.post(LOOKUP, {"keys": [7]}, headers=headers).status


def outcome(sidecar: SidecarProcess, token: str) -> str:
    """Of a lookup with this token, which is let in."""
    headers = {"Authorization": f"Bearer {token}"}
    reply = sidecar.post(LOOKUP, {"keys": [7]}, headers=headers)
    return str(reply.json()["outcomes"][0])


def test_rotated_token_counts(
    sidecar: SidecarProcess, volume: ProjectedVolume, database: Database
) -> None:
    """The new one is let in within a minute, and the old one is not any more."""
    assert (status(sidecar, "first"), status(sidecar, "second")) == (200, 401)

    volume.put(dsn=database.dsn(user=role(database), password="first"), token="second")

    until(lambda: status(sidecar, "second") == 200, within_s=WITHIN_S)
    assert status(sidecar, "first") == 401


def test_rotated_password_counts_for_new_connections(
    sidecar: SidecarProcess, volume: ProjectedVolume, database: Database
) -> None:
    """After the old sessions are gone the sidecar connects with the new password."""
    assert outcome(sidecar, "first") == "fetched"

    database.execute(f"ALTER ROLE {role(database)} PASSWORD 'second'")
    volume.put(dsn=database.dsn(user=role(database), password="second"), token="first")
    database.execute(sessions_ended(role(database)))

    until(lambda: outcome(sidecar, "first") == "fetched", within_s=WITHIN_S)


def test_refused_login_is_told_as_such(sidecar: SidecarProcess, database: Database) -> None:
    """Every lookup hears it, also those that are not sent because others were refused."""
    user = role(database)
    database.execute(
        f"ALTER ROLE {user} PASSWORD 'second'",
        sessions_ended(user),
    )

    headers = {"Authorization": "Bearer first"}
    replies = [sidecar.post(LOOKUP, {"keys": [7]}, headers=headers).json() for _ in range(4)]

    assert [each["errors"]["0"]["code"] for each in replies] == ["backend_auth"] * 4
