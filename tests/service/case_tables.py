"""Tables of cases in text files: a case is one line, followed by its indented expected lines.

Lines that begin with # state the rule of a group.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet


def cases(path: Path, *values: object) -> Iterator[ParameterSet]:
    """The cases of a file as parameters: these values, the case, and the expected lines."""
    for block in path.read_text().replace("\n  ", "\0").splitlines():
        if block and not block.startswith("#"):
            case, *expected = block.split("\0")
            yield pytest.param(*values, case, expected, id=f"{path.stem}-{case}")
