"""Steps of a long run, printed with result and duration."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager


class StepFailed(Exception):
    """A step failed; the text is the reason."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print the result of the step; raises StepFailed after a failure."""
    began_s = time.monotonic()
    try:
        yield
    except (StepFailed, AssertionError, OSError, subprocess.SubprocessError) as error:
        print(f"FAILED {time.monotonic() - began_s:5.1f} s  {name}: {error}", flush=True)
        raise StepFailed(name) from error
    print(f"ok     {time.monotonic() - began_s:5.1f} s  {name}", flush=True)


def demand(is_so: object, otherwise: str) -> None:
    """Raises StepFailed with the text if the condition is false."""
    if not is_so:
        raise StepFailed(otherwise)
