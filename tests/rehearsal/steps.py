"""The steps of a rehearsal, each printed with its result and its seconds.

Decides nothing; what a step does raises when it goes wrong.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepFailed(Exception):
    """The text is what went wrong, for who ran the rehearsal."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print how it went; raises StepFailed, with the reason printed, where it went wrong."""
    began_s = time.monotonic()
    try:
        yield
    except (StepFailed, AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"FAILED {time.monotonic() - began_s:5.1f} s  {name}: {error}", flush=True)  # noqa: T201
        raise StepFailed(name) from error
    print(f"ok     {time.monotonic() - began_s:5.1f} s  {name}", flush=True)  # noqa: T201


def demand(is_so: object, otherwise: str) -> None:
    """Raises StepFailed with the text if it is not so."""
    if not is_so:
        raise StepFailed(otherwise)
