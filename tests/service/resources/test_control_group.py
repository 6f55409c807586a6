"""Where a control group's files are."""

from pathlib import Path

import pytest

from service.resources.memory_reading import ControlGroup


def put(root: Path, groups: str, *folders: str) -> Path:
    """A machine whose process is in these groups."""
    for folder in ("proc/self", "sys/fs/cgroup", *folders):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text(groups)
    return root


@pytest.mark.parametrize(
    ("groups", "folder", "is_version_1"),
    [
        ("0::/one\n", "sys/fs/cgroup/one", False),
        ("0::/of/the/host\n", "sys/fs/cgroup", False),
        ("3:cpu,cpuacct:/one\n2:memory:/x\n", "sys/fs/cgroup/cpu/one", True),
        ("3:cpu:/of/the/host\n", "sys/fs/cgroup/cpu", True),
        ("", "sys/fs/cgroup", False),
    ],
)
def test_group_is_found(*, tmp_path: Path, groups: str, folder: str, is_version_1: bool) -> None:
    """By its path, or at the root where the path is one of the host; each controller by itself."""
    root = put(tmp_path, groups, "sys/fs/cgroup/one", "sys/fs/cgroup/cpu/one")

    assert ControlGroup.of("cpu", root) == ControlGroup(tmp_path / folder, is_version_1)


@pytest.mark.parametrize(("text", "number"), [("12\n", 12), ("max\n", None), (None, None)])
def test_numbers_are_read(tmp_path: Path, text: str | None, number: int | None) -> None:
    """No limit, and no file, are None."""
    if text is not None:
        (tmp_path / "pids.max").write_text(text)

    assert ControlGroup(tmp_path).number("pids.max") == number
