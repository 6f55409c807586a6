"""Programs that stand for others: shell scripts in a folder that is the whole PATH."""

import os
from pathlib import Path


def put_program(folder: Path, name: str, script: str) -> None:
    """Make an executable shell script of this name."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def environ_of(folder: Path) -> dict[str, str]:
    """An environment where these programs come first, with a cache of its own."""
    return {"PATH": str(folder), "HOME": str(folder)}


def path_with(folder: Path) -> str:
    """A PATH where these programs come before the machine's."""
    return f"{folder}:{os.environ['PATH']}"
