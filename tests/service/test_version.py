"""The sidecar's own version."""

import sys
from pathlib import Path

import pytest

from service.version import UNINSTALLED, own_version


def put_distribution(folder: Path, text: str) -> None:
    """Let a distribution of this version be found in the folder."""
    place = folder / f"sidelook-{text}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sidelook\nVersion: {text}\n")


def test_version_is_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed says which version it is."""
    put_distribution(tmp_path, "1.2.3")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert own_version() == "1.2.3"


def test_checkout_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that is not installed has no version of its own."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert own_version() == UNINSTALLED
