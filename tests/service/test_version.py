"""The sidecar's own version."""

import re
from pathlib import Path

from service.version import own_version


def test_version_is_that_of_the_project() -> None:
    """What is run says which version it is, be it installed or not."""
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()

    assert f'\nversion = "{own_version()}"\n' in project
    assert re.fullmatch(r"\d+\.\d+\.\d+", own_version())
