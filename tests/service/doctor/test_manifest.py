"""Manifests as values."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.doctor.deployment.manifest import Manifest, quantity, read_manifests


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        *[("500m", 0.5), ("2", 2.0), ("1.5", 1.5), ("2u", 2e-6)],
        *[("768Mi", 768 * 2**20), ("1G", 1e9), ("1k", 1e3), ("1Ki", 1024.0)],
        *[("", None), ("much", None), ("1Q", None), ("mi", None), ("1mi", None)],
    ],
)
def test_quantities_are_read(text: str, amount: float | None) -> None:
    """Units of ten and of two; what is none is None."""
    assert quantity(text) == amount


def test_missing_parts_are_empty() -> None:
    """Whatever is missing, or of another kind, is empty."""
    manifest = Manifest({"a": {"b": [1, {"c": 2}]}, "n": True, "t": None})

    assert manifest.below("a", "b", "c") == Manifest()
    assert manifest.below("a").items("b") == [Manifest({"c": 2})]
    assert (manifest.number("n", 7), manifest.text("t"), manifest.items("a")) == (7, "", [])


def test_documents_are_read(tmp_path: Path) -> None:
    """Several in one file; those that are no mappings are none."""
    file = tmp_path / "m.yaml"
    file.write_text("kind: A\n---\n---\n- x\n---\nkind: B\n")

    assert [each.get("kind") for each in read_manifests(file)] == ["A", "B"]


@pytest.mark.parametrize(("text", "reason"), [(None, "cannot be read"), ("{{ x }}: [", "is not")])
def test_unreadable_files_have_a_reason(tmp_path: Path, text: str | None, reason: str) -> None:
    """A file that is missing, or a template of Helm's."""
    file = tmp_path / "m.yaml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(ConfigurationError) as caught:
        read_manifests(file)

    assert caught.value.detail.startswith(reason)
