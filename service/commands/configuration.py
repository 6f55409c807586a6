"""`check-config`, `schema` and `gen-triggers`: commands on a configuration file."""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lookup_core.errors import (
    BackendError,
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    named_dimension,
    of_dimension,
)
from service.commands.key_commands import DimensionArgument
from service.config.dimension import DimensionConfig
from service.config.loading import EMBEDDED, load_settings
from service.config.refresh import Notifications
from service.config.settings import Settings
from service.config.source import ParquetSource, PostgresSource

NAME_IT = "name yours with --config FILE"
_DESCRIBE_TIMEOUT_S = 5.0
_UNKNOWN_KIND = "a partitioned table needs --partitioned, and a view has no triggers"


def check_config(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML file; SIDELOOK_ variables override it.")
    ],
) -> None:
    """Check a configuration and list its faults.

    Parquet files are read if the keys have no faults.
    """
    settings = load_settings(file, os.environ)
    if faults := list(_file_faults(settings)):
        raise ConfigurationError(faults)
    count = len(settings.dimensions)
    typer.echo(f"ok: {count} dimension{'' if count == 1 else 's'}")


def _file_faults(settings: Settings) -> Iterator[str]:
    # Imported here: other commands must not wait for Arrow.
    from service.connectors.parquet.file import parquet_schema  # noqa: PLC0415

    for name, config in settings.dimensions.items():
        if isinstance(config.source, ParquetSource):
            try:
                parquet_schema(config.source.path, config.key, columns=config.columns)
            except BackendError as error:
                yield f"dimensions.{name}.source.path: {error.detail}"


def schema() -> None:
    """Print the JSON Schema of the configuration."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    typer.echo(json.dumps(dialect | Settings.model_json_schema(), indent=2))


ConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The sidecar's YAML file; by default an example."),
]


def gen_triggers(
    dimension: DimensionArgument,
    *,
    config: ConfigOption = None,
    partitioned: Annotated[
        bool,
        typer.Option(
            "--partitioned", help="The table is partitioned; needed if no database answers."
        ),
    ] = False,
) -> None:
    """Print the SQL for triggers that publish a table's changes.

    The database is queried for the kind of the table; if it does not answer, a note says so.
    """
    # Imported here: other commands must not wait for Arrow.
    from service.connectors.postgres.triggers import trigger_sql  # noqa: PLC0415

    if config is None:
        typer.echo(f"no --config is given: using the example {EMBEDDED}; {NAME_IT}", err=True)
    settings = load_settings(config, os.environ)
    where = f"configured in {config or EMBEDDED}"
    found = named_dimension(settings.dimensions, dimension, where=where)
    if not isinstance(found.source, PostgresSource):
        detail = f"dimension {dimension} has no PostgreSQL table, so it has no triggers"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    if found.source.table is None or found.source.feed_fault is not None:
        detail = f"dimension {dimension}: triggers {found.source.feed_fault}; use cache.ttl"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    is_partitioned = asyncio.run(_is_partitioned(dimension, found))
    if partitioned and is_partitioned is False:
        detail = f"{found.source.table} is not partitioned; leave --partitioned out"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    is_partitioned = partitioned if is_partitioned is None else is_partitioned
    channel = (found.refresh.listen or Notifications()).channel_of(dimension)
    script = trigger_sql(
        found.source.table, found.key, channel=channel, is_partitioned=is_partitioned
    )
    typer.echo(script, nl=False)


async def _is_partitioned(name: str, config: DimensionConfig) -> bool | None:
    """Whether the table is partitioned; None, and a note, if the database does not answer.

    Raises InvalidRequest for a table that cannot be followed by triggers.
    """
    from service.commands.doctor_run import quiet_libraries  # noqa: PLC0415
    from service.connectors.postgres.backend import PostgresBackend  # noqa: PLC0415
    from service.wiring.connector_settings import postgres_settings  # noqa: PLC0415

    settings = replace(
        postgres_settings(config),
        is_followed=True,
        has_triggers=True,
        needs_publication=False,
        require_index=False,
    )
    try:
        with quiet_libraries():
            async with PostgresBackend(settings) as backend:
                schema = await backend.describe(timeout_s=_DESCRIBE_TIMEOUT_S)
    except BackendError as error:
        if error.is_permanent:
            detail = of_dimension(name, error.detail)
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail) from error
        typer.echo(f"the table is not checked: {error.detail}; {_UNKNOWN_KIND}", err=True)
        return None
    return schema.origin is not None and schema.origin.is_partitioned
