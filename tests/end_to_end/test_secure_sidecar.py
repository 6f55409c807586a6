"""Spark and the commands against a sidecar with TLS, certificates of the callers, and a token."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lookup_core.errors import InvalidRequest, SidecarUnreachable
from spark_client import Sidecar
from tests.end_to_end.secure_sidecar import SecureSidecar, command, secure_sidecar
from tests.service.tls.certificates import authority, yesterday
from tools.processes.sidecar_process import ROOT, clean_environ, free_port
from tools.processes.until import until

COMMAND_TIMEOUT_S = 60.0
PATIENCE_S = 30.0
HASTE_S = 0.5  # for what is tried again and again, as long as the timeout is
NOT_HEARD = ("timed out", "did not answer in time", "no answer yet")
PAGE = ROOT / "docs" / "tls.md"
TYPED_TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSidecar]:
    """The sidecar of these tests."""
    with secure_sidecar(tmp_path_factory.mktemp("secure")) as sidecar:
        yield sidecar


def handle(secure: SecureSidecar) -> Sidecar:
    """The client's handle, with everything that the sidecar asks for."""
    return Sidecar(
        secure.url,
        token_file=str(secure.token_file),
        connect_timeout=PATIENCE_S,
        ca_file=str(secure.signer.file),
        cert_file=str(secure.caller.cert_file),
        key_file=str(secure.caller.key_file),
    )


def refusal(sidecar: Sidecar) -> str:
    """What the driver is told when it asks for the columns of a dimension."""
    hasty = dataclasses.replace(sidecar, connect_timeout=HASTE_S)
    while True:
        with pytest.raises((SidecarUnreachable, InvalidRequest)) as caught:
            hasty.lookup_udf("customers")
        told = caught.value.detail
        if not any(words in told for words in NOT_HEARD):
            return told
        # The machine was busy. It would try for so long in any case, so that haste is quicker.
        assert hasty.connect_timeout < PATIENCE_S, told
        hasty = dataclasses.replace(sidecar, connect_timeout=2 * hasty.connect_timeout)


def log(secure: SecureSidecar) -> str:
    """What the sidecar has logged."""
    return (secure.process.folder / "log").read_text()


@pytest.mark.real_path
def test_spark_job_joins_over_tls(secure: SecureSidecar, spark_session: SparkSession) -> None:
    """Driver and tasks connect with certificate and token, and every record is enriched."""
    records = spark_session.range(1000).withColumnRenamed("id", "n").repartition(2)
    join = handle(secure).lookup_join("customers", on="n", columns=["name"])

    rows = {row["n"]: row["name"] for row in records.transform(join).collect()}

    assert rows == {number: f"customer {number}" for number in range(1000)}


@pytest.mark.real_path
def test_unknown_authority_is_refused(secure: SecureSidecar) -> None:
    """Whoever does not know who signed the certificate is told how to name them."""
    stranger = dataclasses.replace(handle(secure), ca_file=None)

    assert "not signed by an authority in the system's trust store" in refusal(stranger)


def test_other_host_is_refused(secure: SecureSidecar) -> None:
    """The name that is asked for must be one of the certificate's."""
    other = dataclasses.replace(handle(secure), url=f"https://127.0.0.1:{secure.port}")

    assert "its certificate is not for 127.0.0.1; use a host of the certificate" in refusal(other)


def test_missing_certificate_is_refused(secure: SecureSidecar) -> None:
    """Whoever shows no certificate is told that one may be needed."""
    nameless = dataclasses.replace(handle(secure), cert_file=None, key_file=None)

    assert "if it requires client certificates, give cert_file and key_file" in refusal(nameless)


def test_certificate_of_a_stranger_is_refused(secure: SecureSidecar, tmp_path: Path) -> None:
    """One that the sidecar's authority did not sign is named, and where the reason is found."""
    files = authority(tmp_path).issue("executor.example")
    stranger = dataclasses.replace(
        handle(secure), cert_file=str(files.cert_file), key_file=str(files.key_file)
    )

    assert f"if it does not accept {files.cert_file}, its log says why" in refusal(stranger)
    until(lambda: re.search('"unable_to_get_issuer|certificate_verify_failed', log(secure)))


def test_expired_certificate_is_refused(secure: SecureSidecar) -> None:
    """One whose time is over is named."""
    files = secure.signer.issue("executor.example", name="expired", not_after=yesterday())
    late = dataclasses.replace(
        handle(secure), cert_file=str(files.cert_file), key_file=str(files.key_file)
    )

    assert f"if it does not accept {files.cert_file}, its log says why" in refusal(late)


@pytest.mark.parametrize(
    ("token", "told"),
    [(None, "wants a token (HTTP 401); name its file"), ("wrong", "refused the token (HTTP 401)")],
)
def test_token_is_asked_for_as_well(
    secure: SecureSidecar, tmp_path: Path, token: str | None, told: str
) -> None:
    """A certificate does not replace the token where there is one."""
    file = tmp_path / "token"
    file.write_text(token or "")
    guessing = dataclasses.replace(handle(secure), token_file=str(file) if token else None)

    assert told in refusal(guessing)


def test_plain_http_is_refused(secure: SecureSidecar) -> None:
    """Without TLS nothing is answered, least of all a token asked for; https:// is named."""
    plain = Sidecar(f"http://localhost:{secure.port}")

    told = refusal(plain)
    assert "the handshake failed" in told
    assert f"if it listens with TLS, its address is {secure.url}" in told


def test_renewed_certificate_is_served(secure: SecureSidecar) -> None:
    """Who trusts the new name is served without a restart; what was connected goes on."""
    secure.signer.issue("localhost", "renewed.localhost")

    until(lambda: 'result="taken"} 1.0' in secure.process.health("/metrics").text)

    assert callable(handle(secure).lookup_udf("customers"))


def told(secure: SecureSidecar, metric: str) -> float:
    """The value of a metric, by its name with labels."""
    (value,) = re.findall(
        rf"^{re.escape(metric)} (\S+)$", secure.process.health("/metrics").text, re.MULTILINE
    )
    return float(value)


@pytest.mark.parametrize(
    ("wrong", "reason"), [("expired", "certificate has expired"), ("key", "is not the key of")]
)
def test_faulty_renewal_changes_nothing(secure: SecureSidecar, wrong: str, reason: str) -> None:
    """The former certificate stays, with its end; log and metric say that a new one is refused."""
    expiry = "sidelook_tls_certificate_expiry_seconds"
    refusals = 'sidelook_tls_certificate_renewals_total{result="refused"}'
    end, before = told(secure, expiry), told(secure, refusals)
    if wrong == "expired":
        secure.signer.issue("localhost", not_after=yesterday())
    else:
        other = secure.signer.issue("localhost", name="other")
        (secure.signer.folder / "tls.crt").write_bytes(other.cert_file.read_bytes())

    # A look between the two files, which are written one after the other, has another reason.
    until(lambda: told(secure, refusals) > before and reason in _last_refusal(secure))

    assert callable(handle(secure).lookup_udf("customers"))
    assert told(secure, expiry) == end


def _last_refusal(secure: SecureSidecar) -> str:
    events = [json.loads(line) for line in log(secure).splitlines() if line.startswith("{")]
    refused = [each for each in events if each["event"] == "tls.certificate_rejected"]
    return str(refused[-1]["detail"])


def test_swapped_volume_is_served(secure: SecureSidecar) -> None:
    """Files that are links into a folder, which is swapped as the kubelet does, count anew."""
    folder = secure.signer.folder
    taken = 'sidelook_tls_certificate_renewals_total{result="taken"}'
    before = told(secure, taken)
    for version in ("..1", "..2"):
        (folder / version).mkdir()
        signer = dataclasses.replace(secure.signer, folder=folder / version)
        signer.issue("localhost", f"v{version[2:]}.localhost")
    (folder / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (folder / f"{name}.tmp").symlink_to(f"..data/{name}")
        (folder / f"{name}.tmp").replace(folder / name)
    until(lambda: told(secure, taken) > before)
    first = told(secure, taken)

    (folder / "..data_tmp").symlink_to("..2")
    (folder / "..data_tmp").replace(folder / "..data")

    until(lambda: told(secure, taken) > first)
    assert callable(handle(secure).lookup_udf("customers"))


def typed(language: str, ports: dict[str, str]) -> list[str]:
    """What the page says to type, with other ports."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for old, new in ports.items():
        blocks = [block.replace(old, new) for block in blocks]
    return blocks


@pytest.mark.full
def test_page_can_be_typed_in(tmp_path: Path) -> None:
    """From the authority to a job with certificates on both sides, each command ends well."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    ports = {"8815": str(free_port()), "8816": str(free_port())}
    job, handle_with_certificate = typed("python", ports)
    lines = job.splitlines()
    (tmp_path / "job.py").write_text(
        "\n".join([*lines[:-1], handle_with_certificate, lines[-1]]) + "\n"
    )
    script = "".join(["set -em\ntrap 'kill %1' EXIT\n", *typed("sh", ports)])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}

    with (tmp_path / "errors").open("wb") as errors:
        ended = subprocess.run(
            ["/bin/bash", "-c", f"{script}python ../../job.py\n"],
            cwd=tmp_path,
            env={**clean_environ(), **environ},
            stdout=subprocess.PIPE,
            stderr=errors,
            timeout=TYPED_TIMEOUT_S,
            check=False,
        )

    assert ended.returncode == 0, (tmp_path / "errors").read_text()
    assert ended.stdout.decode().count("John F Kennedy Intl") == 4


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
    assert "give the authority with --ca-file" in untrusted
    assert "if it requires client certificates, give --cert-file and --key-file" in nameless
