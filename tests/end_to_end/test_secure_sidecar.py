"""Spark and the commands against a sidecar with TLS, certificates of the callers, and a token."""

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lookup_core.errors import InvalidRequest, SidecarUnreachable
from spark_client import Sidecar
from tests.end_to_end.secure_sidecar import SecureSidecar, command, secure_sidecar
from tests.end_to_end.sidecar_process import ROOT, clean_environ
from tests.end_to_end.until import until
from tests.service.tls.certificates import authority, yesterday

COMMAND_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSidecar]:
    """The sidecar of these tests."""
    with secure_sidecar(tmp_path_factory.mktemp("secure")) as sidecar:
        yield sidecar


def handle(secure: SecureSidecar, *, timeout_s: float = 0.5) -> Sidecar:
    """The client's handle, with everything that the sidecar asks for."""
    return Sidecar(
        secure.url,
        token_file=str(secure.token_file),
        connect_timeout=timeout_s,
        ca_file=str(secure.signer.file),
        cert_file=str(secure.caller.cert_file),
        key_file=str(secure.caller.key_file),
    )


def refusal(sidecar: Sidecar) -> str:
    """What the driver is told when it asks for the columns of a dimension."""
    with pytest.raises((SidecarUnreachable, InvalidRequest)) as caught:
        sidecar.lookup_udf("customers")
    return caught.value.detail


def log(secure: SecureSidecar) -> str:
    """What the sidecar has logged."""
    return (secure.process.folder / "log").read_text()


def test_spark_job_joins_over_tls(secure: SecureSidecar, spark_session: SparkSession) -> None:
    """Driver and tasks connect with certificate and token, and every record is enriched."""
    records = spark_session.range(1000).withColumnRenamed("id", "n").repartition(2)
    join = handle(secure, timeout_s=30.0).lookup_join("customers", on="n", columns=["name"])

    rows = {row["n"]: row["name"] for row in records.transform(join).collect()}

    assert rows == {number: f"customer {number}" for number in range(1000)}


def test_unknown_authority_is_refused(secure: SecureSidecar) -> None:
    """Whoever does not know who signed the certificate is told how to name them."""
    stranger = dataclasses.replace(handle(secure), ca_file=None)

    assert "nobody in the system's authorities signed its certificate" in refusal(stranger)


def test_other_host_is_refused(secure: SecureSidecar) -> None:
    """The name that is asked for must be one of the certificate's."""
    other = dataclasses.replace(handle(secure), url=f"https://127.0.0.1:{secure.port}")

    assert "its certificate is not for 127.0.0.1; ask for a name that it has" in refusal(other)


def test_missing_certificate_is_refused(secure: SecureSidecar) -> None:
    """Whoever shows no certificate is told that one may be needed."""
    nameless = dataclasses.replace(handle(secure), cert_file=None, key_file=None)

    assert "if it asks for certificates, give cert_file and key_file" in refusal(nameless)


def test_certificate_of_a_stranger_is_refused(secure: SecureSidecar, tmp_path: Path) -> None:
    """One that the sidecar's authority did not sign is named, and where the reason is found."""
    files = authority(tmp_path).issue("executor.example")
    stranger = dataclasses.replace(
        handle(secure), cert_file=str(files.cert_file), key_file=str(files.key_file)
    )

    assert f"if it does not accept {files.cert_file}, its log says why" in refusal(stranger)
    assert '"unable_to_get_issuer' in log(secure) or "certificate_verify_failed" in log(secure)


def test_expired_certificate_is_refused(secure: SecureSidecar) -> None:
    """One whose time is over is named."""
    files = secure.signer.issue("executor.example", name="expired", not_after=yesterday())
    late = dataclasses.replace(
        handle(secure), cert_file=str(files.cert_file), key_file=str(files.key_file)
    )

    assert f"if it does not accept {files.cert_file}, its log says why" in refusal(late)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_token_is_asked_for_as_well(
    secure: SecureSidecar, tmp_path: Path, token: str | None
) -> None:
    """A certificate does not replace the token where there is one."""
    file = tmp_path / "token"
    file.write_text(token or "")
    guessing = dataclasses.replace(handle(secure), token_file=str(file) if token else None)

    assert "refused the token (HTTP 401)" in refusal(guessing)


def test_plain_http_is_refused(secure: SecureSidecar) -> None:
    """Without TLS nothing is answered, least of all a token asked for."""
    plain = Sidecar(f"http://localhost:{secure.port}", connect_timeout=0.5)

    assert "the handshake failed" in refusal(plain)


def test_renewed_certificate_is_served(secure: SecureSidecar) -> None:
    """Who trusts the new name is served without a restart; what was connected goes on."""
    secure.signer.issue("localhost", "renewed.localhost")

    until(lambda: 'result="taken"} 1.0' in secure.process.health("/metrics").text)

    assert callable(handle(secure).lookup_udf("customers"))


def answered(secure: SecureSidecar, *options: str) -> tuple[int, str, str]:
    """The end of a lookup on the command line: exit code, what was printed, what was wrong."""
    given = ("--endpoint", secure.url, "--token-file", str(secure.token_file), *options)
    ended = subprocess.run(
        command("lookup", "customers", "7", *given),
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_command_asks_over_tls(secure: SecureSidecar) -> None:
    """The commands take the same three files."""
    files = ("--cert-file", str(secure.caller.cert_file), "--key-file", str(secure.caller.key_file))

    code, printed, _ = answered(secure, "--ca-file", str(secure.signer.file), *files)

    assert (code, "customer 7" in printed) == (0, True)


def test_command_tells_what_is_missing(secure: SecureSidecar) -> None:
    """The remedy is an option of the command."""
    code, _, untrusted = answered(secure)
    _, _, nameless = answered(secure, "--ca-file", str(secure.signer.file))

    assert code != 0
    assert "name who did with --ca-file" in untrusted
    assert "if it asks for certificates, give --cert-file and --key-file" in nameless
