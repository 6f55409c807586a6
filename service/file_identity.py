"""Identity of a file, to detect that it was replaced or written."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """File attributes that change when the file is replaced or written."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, path: Path | str) -> Self:
        """Identity of the current file; raises OSError."""
        found = os.stat(path)  # noqa: PTH116 - of thousands of files: four times as fast
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)
