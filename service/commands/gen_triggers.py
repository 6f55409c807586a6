"""`gen-triggers`: print the SQL of the triggers that a dimension with `refresh.listen` needs.

Runs nothing: who owns the table looks at it first, and runs it then.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.unknown_dimension import unknown_dimension
from service.config.loading import EMBEDDED, load_settings
from service.config.notifications import Notifications
from service.config.source import PostgresSource


def gen_triggers(
    dimension: Annotated[str, typer.Argument(metavar="DIMENSION")],
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML file; without it, the dimensions of examples/parquet.yaml."
        ),
    ] = None,
) -> None:
    """Print the SQL that makes a table tell its changes, for psql."""
    # Here, so that no other command waits for the import of Arrow.
    from service.sources.trigger_sql import trigger_sql  # noqa: PLC0415

    settings = load_settings(config, os.environ)
    found = settings.dimensions.get(dimension)
    if found is None:
        where = f"configured in {config or EMBEDDED}"
        raise unknown_dimension(dimension, settings.dimensions, where=where)
    if not isinstance(found.source, PostgresSource):
        detail = f"dimension {dimension} is not of PostgreSQL; only its tables have triggers"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    channel = (found.refresh.listen or Notifications()).channel_of(dimension)
    typer.echo(trigger_sql(found.source.table, found.key, channel=channel), nl=False)
