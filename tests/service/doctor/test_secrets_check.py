"""Files with secrets."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.doctor.sidecar.secrets_check import (
    SecretFacts,
    SecretsCheck,
    read_secret_facts,
    secret_files,
    secret_findings,
)
from tests.service.doctor.findings import MATTER, gathered, severities

WELL = SecretFacts(0o440)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A file with a token."""
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o400)
    return file


@pytest.mark.parametrize(
    ("facts", "is_token", "expected"),
    [
        (WELL, True, ["ok"]),
        (replace(WELL, mode=0o400), False, ["ok"]),
        (replace(WELL, mode=0o444), False, ["error"]),
        (replace(WELL, mode=0o402), False, ["error"]),
        (replace(WELL, mode=0o460), False, ["warning"]),
        (replace(WELL, is_plain_line=False), True, ["error"]),
        (replace(WELL, is_plain_line=False), False, ["ok"]),
        (replace(WELL, is_mount=True), False, ["warning"]),
        (SecretFacts(refusal="Permission denied"), False, ["error"]),
    ],
)
def test_facts_are_judged(facts: SecretFacts, is_token: bool, expected: list[str]) -> None:  # noqa: FBT001
    """Who else may read it, whether a header can carry it, and how it is mounted."""
    assert severities(secret_findings(MATTER, facts, is_token=is_token)) == expected


def test_file_is_read(token: Path) -> None:
    """A token on one line, for its owner only."""
    assert read_secret_facts(token) == SecretFacts(0o400)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A file that is gone, or is no text, has a reason."""
    (tmp_path / "bytes").write_bytes(b"\xff")

    assert read_secret_facts(tmp_path / "gone").refusal == "No such file or directory"
    assert read_secret_facts(tmp_path / "bytes").refusal == "not UTF-8 text"


def test_sub_path_is_seen(token: Path, tmp_path: Path) -> None:
    """A file that is a mount by itself is one of a subPath."""
    mounts = tmp_path / "proc/self/mountinfo"
    mounts.parent.mkdir(parents=True)
    mounts.write_text(f"36 35 98:0 /x {token} rw - ext4 /dev/sda rw\n")

    assert read_secret_facts(token, tmp_path).is_mount


async def test_all_files_are_looked_at(token: Path) -> None:
    """Tokens, addresses and passwords of brokers; nothing of what they hold is told."""
    address = token.with_name("dsn")
    address.write_text("postgresql://me:s3cret@h/d")
    address.chmod(0o400)
    source = {"kind": "postgres", "dsn_file": str(address), "table": "t"}
    security = {"mechanism": "PLAIN", "username": "u", "password_file": str(token)}
    changelog = {"brokers": ["h:1"], "topic": "t", "format": "upsert_json", "security": security}
    dimension = {"source": source, "key": ["id"], "refresh": {"changelog": changelog}}
    settings = Settings({"auth": {"admin_token_file": str(token)}, "dimensions": {"a": dimension}})

    found = await gathered(SecretsCheck(settings).findings())

    assert secret_files(settings) == {address: False, token: True}
    assert severities(found) == ["ok", "ok"]
    assert "s3cret" not in str(found)
