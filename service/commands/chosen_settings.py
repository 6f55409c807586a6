"""The configuration that a command runs with: the one that was named, or the example.

Says so where it is the example: few who leave --config out mean that.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from lookup_core.errors import ConfigurationError
from service.config.loading import EMBEDDED, load_settings
from service.config.settings import Settings

NAME_IT = "name yours with --config FILE"

ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The sidecar's YAML file; without it, an example is taken."),
]


def chosen_settings(
    config: Path | None, tell: Callable[[Path], None], *, example: Path = EMBEDDED
) -> Settings:
    """The settings of the file; without one those of the example, of which `tell` is told.

    Raises ConfigurationError, also where there is no example.
    """
    if config is None:
        if not example.is_file():
            raise ConfigurationError([f"no configuration; {NAME_IT}"])
        tell(example)
    return load_settings(config, os.environ)
