"""A root of the machine's programs holds all that they are made of."""

import sys
from pathlib import Path

import pytest

from tests.rehearsal.host_root import HostRoot


def test_linked_environment_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is a link out of the tree is mounted where the link leads to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".venv").symlink_to("elsewhere")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))

    container = HostRoot(tmp_path / "root").container(["true"], writable=[])

    targets = [mount.target for mount in container.mounts]
    assert str(tmp_path / "elsewhere") in targets
    assert len(targets) == len(set(targets))
