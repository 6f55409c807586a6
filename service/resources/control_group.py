"""Where the kernel says what a control group may have, in both of its versions.

Only places and numbers; what they mean is known by those who read them.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The folder of this process's group for one controller."""

    folder: Path
    is_version_1: bool = False

    @classmethod
    def of(cls, controller: str, root: Path = Path("/")) -> "ControlGroup":
        """The group of `memory`, `cpu` or `pids`; `root` is where /proc and /sys are."""
        groups = root / "sys/fs/cgroup"
        for line in text_of(root / "proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                return cls(_existing(groups, path))
            if controller in controllers.split(","):
                return cls(_existing(groups / controller, path), is_version_1=True)
        return cls(groups)

    def text(self, name: str) -> str:
        """What a file of the group says; empty if there is none, as at the root group."""
        return text_of(self.folder / name).strip()

    def number(self, name: str) -> int | None:
        """The number in a file of the group; None for "max", and where there is no such file."""
        text = self.text(name)
        return int(text) if text.isdigit() else None


def text_of(file: Path) -> str:
    """What the file says; empty if there is none."""
    return file.read_text() if file.is_file() else ""


def _existing(groups: Path, path: str) -> Path:
    # In a container the path may be the host's, and the container's own group stand at the root.
    folder = groups / path.strip("/")
    return folder if folder.is_dir() else groups
