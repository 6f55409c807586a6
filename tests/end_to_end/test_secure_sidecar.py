"""Spark and the commands against a sidecar with TLS, client certificates and a token."""

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lookup_core.errors import InvalidRequest, SidecarUnreachable
from spark_client import Sidecar
from tests.end_to_end.sidecars import SecureSidecar, ended, secure_sidecar
from tests.service.tls.certificates import authority, yesterday
from tools.processes.until import until

PATIENCE_S = 30.0
HASTE_S = 0.5  # the first timeout, doubled after each attempt
TAKEN = 'sidelook_tls_certificate_renewals_total{result="taken"}'
NOT_HEARD = ("timed out", "did not answer in time", "no answer yet")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureSidecar]:
    """The sidecar of these tests."""
    with secure_sidecar(tmp_path_factory.mktemp("secure")) as sidecar:
        yield sidecar


def handle(secure: SecureSidecar) -> Sidecar:
    """The client's handle with authority, certificate and token."""
    return Sidecar(
        secure.url,
        token_file=str(secure.token_file),
        connect_timeout=PATIENCE_S,
        ca_file=str(secure.signer.file),
        cert_file=str(secure.caller.cert_file),
        key_file=str(secure.caller.key_file),
    )


def refusal(sidecar: Sidecar) -> str:
    """The error of the driver when it requests the columns of a dimension."""
    hasty = dataclasses.replace(sidecar, connect_timeout=HASTE_S)
    while True:
        with pytest.raises((SidecarUnreachable, InvalidRequest)) as caught:
            hasty.lookup_udf("customers")
        detail = caught.value.detail
        if not any(words in detail for words in NOT_HEARD):
            return detail
        # The client retries for the whole timeout, so a short one is quicker.
        assert hasty.connect_timeout < PATIENCE_S, detail
        hasty = dataclasses.replace(sidecar, connect_timeout=2 * hasty.connect_timeout)


def log(secure: SecureSidecar) -> str:
    """The log of the sidecar."""
    return (secure.process.folder / "log").read_text()


@pytest.mark.real_path
def test_spark_job_joins_over_tls(secure: SecureSidecar, spark_session: SparkSession) -> None:
    """Driver and tasks connect with certificate and token, and every record is enriched."""
    records = spark_session.range(1000).withColumnRenamed("id", "n").repartition(2)
    join = handle(secure).lookup_join("customers", on="n", columns=["name"])

    rows = {row["n"]: row["name"] for row in records.transform(join).collect()}

    assert rows == {number: f"customer {number}" for number in range(1000)}


def test_sql_functions_register_over_tls(
    secure: SecureSidecar, spark_session: SparkSession
) -> None:
    """The driver reads the names of the dimensions with certificate and token, and not without."""
    session, mine = spark_session.newSession(), handle(secure)

    registered = mine.register(session)

    assert registered == {"lookup_customers": "customers"}
    assert session.sql("SELECT lookup_customers(7).name").collect() == [("customer 7",)]
    with pytest.raises(InvalidRequest, match="wants a token"):
        dataclasses.replace(mine, token_file=None).register(session)
    stranger = dataclasses.replace(mine, ca_file=None, connect_timeout=HASTE_S)
    with pytest.raises(SidecarUnreachable, match="not signed by an authority"):
        stranger.register(session)


@pytest.mark.real_path
def test_unknown_authority_is_refused(secure: SecureSidecar) -> None:
    """A certificate of an authority that the client does not know is an error."""
    stranger = dataclasses.replace(handle(secure), ca_file=None)

    assert "not signed by an authority" in refusal(stranger)


def test_other_host_is_refused(secure: SecureSidecar) -> None:
    """A certificate without the requested host name is an error."""
    other = dataclasses.replace(handle(secure), url=f"https://127.0.0.1:{secure.port}")

    assert "its certificate is not for 127.0.0.1" in refusal(other)


def test_missing_certificate_is_refused(secure: SecureSidecar) -> None:
    """The error for a caller without a certificate names the options for one."""
    nameless = dataclasses.replace(handle(secure), cert_file=None, key_file=None)

    assert "give cert_file and key_file" in refusal(nameless)


def test_certificate_of_a_stranger_is_refused(secure: SecureSidecar, tmp_path: Path) -> None:
    """Certificates of other authorities, and expired ones, are named in the error."""
    foreign = authority(tmp_path).issue("executor.example")
    expired = secure.signer.issue("executor.example", name="expired", not_after=yesterday())

    for files in (foreign, expired):
        cert, key = str(files.cert_file), str(files.key_file)
        caller = dataclasses.replace(handle(secure), cert_file=cert, key_file=key)
        assert str(files.cert_file) in refusal(caller)
    until(lambda: re.search('"unable_to_get_issuer|certificate_verify_failed', log(secure)))


def metric(secure: SecureSidecar, name: str) -> float:
    """The value of a metric, by its name with labels."""
    text = secure.process.health("/metrics").text
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(value)


def test_swapped_volume_is_served(secure: SecureSidecar) -> None:
    """Files that are links into a folder are reloaded when the kubelet swaps the folder."""
    folder = secure.signer.folder
    before = metric(secure, TAKEN)
    for version in ("..1", "..2"):
        (folder / version).mkdir()
        signer = dataclasses.replace(secure.signer, folder=folder / version)
        signer.issue("localhost", f"v{version[2:]}.localhost")
    (folder / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (folder / f"{name}.tmp").symlink_to(f"..data/{name}")
        (folder / f"{name}.tmp").replace(folder / name)
    until(lambda: metric(secure, TAKEN) > before)
    first = metric(secure, TAKEN)

    (folder / "..data_tmp").symlink_to("..2")
    (folder / "..data_tmp").replace(folder / "..data")

    until(lambda: metric(secure, TAKEN) > first)
    assert callable(handle(secure).lookup_udf("customers"))


def answered(secure: SecureSidecar, *options: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a lookup on the command line."""
    given = ("--endpoint", secure.url, "--token-file", str(secure.token_file), *options)
    printed = ended((sys.executable, "-m", "service", "lookup", "customers", "7", *given))
    return printed.returncode, printed.stdout, printed.stderr


def test_command_connects_over_tls(secure: SecureSidecar) -> None:
    """The commands take the same three files, and their errors name the options."""
    files = ("--cert-file", str(secure.caller.cert_file), "--key-file", str(secure.caller.key_file))
    ca_file = ("--ca-file", str(secure.signer.file))

    code, printed, _ = answered(secure, *ca_file, *files)
    failed, _, untrusted = answered(secure)
    _, _, nameless = answered(secure, *ca_file)

    assert (code, "customer 7" in printed) == (0, True)
    assert failed != 0
    assert "--ca-file" in untrusted
    assert "--cert-file and --key-file" in nameless
