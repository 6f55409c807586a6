"""Which file it is that has a name: another one may take its place at any time.

Not what is in it: a file that is written anew with the same rows is another one.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What differs once a file is replaced, or written to."""

    inode: int
    modified_ns: int
    size: int

    @classmethod
    def of(cls, path: Path | str) -> Self:
        """Of the file that is there now; raises OSError."""
        found = os.stat(path)  # noqa: PTH116 - of thousands of files: four times as fast
        return cls(found.st_ino, found.st_mtime_ns, found.st_size)
