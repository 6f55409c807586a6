"""The token files of the configuration."""

from pathlib import Path

from service.config.settings import Auth
from tests.service.config.configuration import faults


def test_no_tokens_are_the_default() -> None:
    """The socket's permissions are the default guard."""
    auth = Auth()

    assert (auth.token_file, auth.admin_token_file) == (None, None)


def test_both_files_are_checked(tmp_path: Path) -> None:
    """Each token file is looked at before the start, and each fault is told."""
    readable = tmp_path / "token"
    readable.write_text("t0ken")
    readable.chmod(0o644)

    found = faults({"auth": {"token_file": readable, "admin_token_file": tmp_path / "nope"}})

    assert [fault.split(": ")[0] for fault in found] == ["auth.token_file", "auth.admin_token_file"]
    assert "t0ken" not in "".join(found)
