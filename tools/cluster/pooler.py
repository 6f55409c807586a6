"""PgBouncer with TLS in front of the cluster's database, whose certificate can be replaced."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme

from tools.cluster.certificates import NODE_IP
from tools.cluster.database import Database
from tools.processes.pgbouncer import start_pgbouncer
from tools.processes.until import until

_PORT = 6432
_CONFIGURATION = """
[databases]
postgres = host={socket_folder} dbname=postgres
[pgbouncer]
listen_addr = {address}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder}/users.txt
pool_mode = session
default_pool_size = 50
server_login_retry = 1
ignore_startup_parameters = statement_timeout,jit,row_security,default_transaction_isolation
client_tls_sslmode = require
client_tls_key_file = {folder}/server.key
client_tls_cert_file = {folder}/server.crt
user = {user}
"""


@dataclass(slots=True)
class Pooler:
    """Sessions with TLS; the DSN demands a certificate of the authority in the secret."""

    folder: Path
    database: Database
    _authority: trustme.CA = field(default_factory=trustme.CA)
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def secret(self) -> dict[str, str]:
        """The files of the sidecar's secret."""
        account = f"{self.database.role}:{self.database.password}"
        tls = "sslmode=verify-full&sslrootcert=/etc/sidelook-secret/ca.crt"
        dsn = f"postgresql://{account}@{NODE_IP}:{_PORT}/postgres?{tls}"
        return {"dsn": dsn, "ca.crt": self._authority.cert_pem.bytes().decode()}

    def replaced_authority(self) -> dict[str, str]:
        """Make another authority; the files of the secret trust both until `secret` is used."""
        former = self.secret["ca.crt"]
        self._authority = trustme.CA()
        return {"ca.crt": former + self.secret["ca.crt"]}

    def start(self) -> None:
        """Start it with a certificate of the authority; a running one ends, and its sessions."""
        self.stop()
        self._write()
        self._process = start_pgbouncer(self.folder / "pgbouncer.ini", self.folder / "log")
        until(self._accepts)

    def stop(self) -> None:
        """End it and its sessions; harmless if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as client:
            return client.connect_ex((NODE_IP, _PORT)) == 0

    def _write(self) -> None:
        server = self.database.server
        issued = self._authority.issue_cert(NODE_IP)
        issued.private_key_pem.write_to_path(str(self.folder / "server.key"))
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        (self.folder / "server.crt").write_bytes(chain)
        users = f'"{self.database.role}" "{self.database.password}"\n'
        (self.folder / "users.txt").write_text(users)
        text = _CONFIGURATION.format(
            socket_folder=server.pgdata,
            address=NODE_IP,
            port=_PORT,
            folder=self.folder,
            user=server.system_user,
        )
        (self.folder / "pgbouncer.ini").write_text(text)
        assert server.system_user is not None, "the cluster needs root, and PgBouncer another user"
        for file in (self.folder, *self.folder.iterdir()):
            shutil.chown(file, server.system_user)


@contextmanager
def pooler(folder: Path, database: Database) -> Iterator[Pooler]:
    """A pooler that can be started; its end is that of the block."""
    folder.mkdir(mode=0o700)
    made = Pooler(folder, database)
    try:
        yield made
    finally:
        made.stop()
