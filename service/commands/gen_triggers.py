"""`gen-triggers`: print the SQL of the triggers that a dimension with `refresh.listen` needs.

Runs nothing: who owns the table looks at it first, and runs it then.
"""

from pathlib import Path

import typer

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.unknown_dimension import unknown_dimension
from service.commands.chosen_settings import NAME_IT, ConfigOption, chosen_settings
from service.commands.dimension_argument import DimensionArgument
from service.config.loading import EMBEDDED
from service.config.notifications import Notifications
from service.config.source import PostgresSource


def gen_triggers(
    dimension: DimensionArgument,
    *,
    config: ConfigOption = None,
) -> None:
    """Print the SQL that makes a table tell its changes, for psql."""
    # Here, so that no other command waits for the import of Arrow.
    from service.sources.trigger_sql import trigger_sql  # noqa: PLC0415

    settings = chosen_settings(config, _tell_example)
    found = settings.dimensions.get(dimension)
    if found is None:
        where = f"configured in {config or EMBEDDED}"
        raise unknown_dimension(dimension, settings.dimensions, where=where)
    if not isinstance(found.source, PostgresSource):
        detail = f"dimension {dimension} is not of PostgreSQL; only its tables have triggers"
        raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    channel = (found.refresh.listen or Notifications()).channel_of(dimension)
    typer.echo(trigger_sql(found.source.table, found.key, channel=channel), nl=False)


def _tell_example(file: Path) -> None:
    typer.echo(f"no --config was given: taking the example {file}; {NAME_IT}", err=True)
