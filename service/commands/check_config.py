"""`check-config`: tell everything that is wrong with a configuration, or that nothing is.

Connects to nothing; whether tables and files are there is seen when the sidecar runs.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from service.config.loading import load_settings


def check_config(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML file; SIDELOOK_ variables count, too.")
    ],
) -> None:
    """Check a configuration and list all its faults."""
    settings = load_settings(file, os.environ)
    count = len(settings.dimensions)
    typer.echo(f"ok: {count} dimension{'' if count == 1 else 's'}")
