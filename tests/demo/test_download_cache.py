"""Where what was fetched is kept, and that one at a time adds to it."""

import fcntl
from pathlib import Path

import pytest

from demo.maven_libraries import download_cache


@pytest.mark.parametrize(
    ("variables", "expected"),
    [({}, ".cache/sidelook"), ({"XDG_CACHE_HOME": "kept"}, "kept/sidelook")],
)
def test_cache_is_made_where_it_belongs(
    tmp_path: Path, variables: dict[str, str], expected: str
) -> None:
    """It is below the home folder, or where the user wants it."""
    named = {name: str(tmp_path / value) for name, value in variables.items()}

    with download_cache({"HOME": str(tmp_path), **named}) as folder:
        assert folder.is_dir()

    assert folder == tmp_path / expected


def test_one_at_a_time_has_the_cache(tmp_path: Path) -> None:
    """While one has it, another one would wait; afterwards it would not."""
    with (
        download_cache({"HOME": str(tmp_path)}) as folder,
        (folder / "fetch.lock").open() as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with (folder / "fetch.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
