"""Stub programs: shell scripts in a folder that is the whole PATH."""

import os
from pathlib import Path


def put_program(folder: Path, name: str, script: str) -> None:
    """Write an executable shell script."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def environ_of(folder: Path) -> dict[str, str]:
    """Return an environment with only these programs and an own cache."""
    return {"PATH": str(folder), "HOME": str(folder)}


def path_with(folder: Path) -> str:
    """Return a PATH with these programs before those of the machine."""
    return f"{folder}:{os.environ['PATH']}"
