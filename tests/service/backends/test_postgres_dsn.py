"""An address that is rotated counts from the next connection on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.config.secrets import read_secret
from service.connectors.postgres.settings import RotatedDsn

OLD, NEW = "postgresql://u:old@h/shop", "postgresql://u:new@h/shop"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with the old address."""
    path = tmp_path / "dsn"
    path.write_text(OLD)
    return path


def rotated(path: Path) -> RotatedDsn:
    """What reads it."""
    return RotatedDsn(path, lambda: read_secret(path), first=OLD)


def test_file_is_read_each_time(path: Path) -> None:
    """What stands there now is the address."""
    dsn = rotated(path)
    assert dsn.now() == OLD

    path.write_text(NEW + "\n")

    assert dsn.now() == NEW


@pytest.mark.parametrize(
    "spoil",
    [Path.unlink, lambda path: path.write_text("secret"), lambda path: path.write_bytes(b"\xff")],
)
def test_last_address_counts_while_there_is_none(
    path: Path, spoil: Callable[[Path], object]
) -> None:
    """A file that is away, or holds something else, is logged without what it holds."""
    dsn = rotated(path)
    path.write_text(NEW)
    assert dsn.now() == NEW
    spoil(path)

    with capture_logs() as logs:
        assert dsn.now() == NEW

    assert [event["event"] for event in logs] == ["postgres.dsn_file_unusable"]
    assert "secret" not in str(logs)
