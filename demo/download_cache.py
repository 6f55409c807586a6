"""The folder of the user in which what was fetched is kept, for one at a time to add to.

Fetches nothing itself.
"""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def download_cache(environ: Mapping[str, str]) -> Iterator[Path]:
    """The folder, and a lock on it: whoever comes second finds what the first one fetched.

    One lock for all that is kept there: apt-get fails where another one updates its lists.
    """
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/tmp")) / ".cache"  # noqa: S108  # of a user without a home
    folder = Path(home) / "sidelook"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "fetch.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
