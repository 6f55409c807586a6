"""`check-config`: tell everything that is wrong with a configuration, or that nothing is.

Connects to nothing: what is wrong with tables is seen when the sidecar runs. Of Parquet files the
schema is read, and no row.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lookup_core.errors import BackendError, ConfigurationError
from service.config.loading import load_settings
from service.config.settings import Settings
from service.config.source import ParquetSource


def check_config(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML file; SIDELOOK_ variables count, too.")
    ],
) -> None:
    """Check a configuration and list all its faults."""
    settings = load_settings(file, os.environ)
    if faults := list(_file_faults(settings)):
        raise ConfigurationError(faults)
    count = len(settings.dimensions)
    typer.echo(f"ok: {count} dimension{'' if count == 1 else 's'}")


def _file_faults(settings: Settings) -> Iterator[str]:
    # Here, so that no other command waits for the import of Arrow.
    from service.backends.parquet_file import parquet_schema  # noqa: PLC0415

    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            try:
                parquet_schema(config.source.path, config.key, columns=config.columns)
            except BackendError as error:
                yield f"dimensions.{name}.source.path: {error.detail}"
