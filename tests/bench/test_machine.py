"""What a run was measured on."""

from pathlib import Path

import pytest

from bench.document import machine


@pytest.mark.parametrize(
    ("text", "processor"),
    [("flags\t: a\nmodel name\t: Some CPU\nmodel name\t: Other\n", "Some CPU"), ("", "unknown")],
)
def test_processor_is_named(tmp_path: Path, text: str, processor: str) -> None:
    """The kernel's first model is told; where it tells none, so is that."""
    file = tmp_path / "cpuinfo"
    file.write_text(text)

    assert machine(file).processor == processor


def test_machine_has_cores_memory_versions(tmp_path: Path) -> None:
    """What is told of this machine is plausible, also where there is no such file."""
    found = machine(tmp_path / "none")

    assert found.processor == "unknown"
    assert found.cores >= 1
    assert found.memory_bytes > 2**28
    assert dict(found.libraries)["pyarrow"]
