"""A sidecar that is asked by https, with a token and with certificates of the callers.

Makes its certificates anew; what must come of them is the tests' business.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from service.tls.server_certificate import CertificateFiles
from tests.end_to_end.parquet_sidecar import CUSTOMERS
from tests.service.tls.certificates import Authority, authority
from tools.processes.sidecar_process import SERVE, SidecarProcess, free_port

HOST = "localhost"
_CONFIG = """
listen:
  http: 127.0.0.1:{port}
  tls: {{cert_file: tls.crt, key_file: tls.key, client_ca_file: ca.crt}}
auth: {{token_file: token}}
dimensions:
  customers: {{source: {{kind: parquet, path: customers.parquet}}, key: [id]}}
"""


@dataclass(frozen=True, slots=True)
class SecureSidecar:
    """Where it is, and what its callers need."""

    process: SidecarProcess
    port: int
    signer: Authority
    token_file: Path
    caller: CertificateFiles

    @property
    def url(self) -> str:
        """By the name that its certificate has."""
        return f"https://{HOST}:{self.port}"


@contextmanager
def secure_sidecar(folder: Path) -> Iterator[SecureSidecar]:
    """The sidecar as its own process, while it runs."""
    pq.write_table(CUSTOMERS, folder / "customers.parquet")
    port, signer, token = free_port(), authority(folder), folder / "token"
    signer.issue(HOST)
    caller = replace(signer.issue("executor.example", name="caller"), client_ca_file=signer.file)
    token.touch(0o600)
    token.write_text("s3cret-s3cret")
    (folder / "config.yaml").write_text(_CONFIG.format(port=port))
    process = SidecarProcess(folder, (*SERVE, "--config", str(folder / "config.yaml")))
    environ = {**process.environ, "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{port}"}
    process = replace(process, environ=environ)
    with process.running():
        yield SecureSidecar(process, port, signer, token, caller)


def command(*arguments: str) -> tuple[str, ...]:
    """One of the service's commands."""
    return (sys.executable, "-m", "service", *arguments)
