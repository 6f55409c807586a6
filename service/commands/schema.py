"""`schema`: the JSON Schema of the configuration, for editors and other checkers.

Weaker than `check-config`: a schema cannot tell most contradictions.
"""

import json

import typer

from service.config.settings import Settings


def schema() -> None:
    """Print the JSON Schema of the configuration."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    typer.echo(json.dumps(dialect | Settings.model_json_schema(), indent=2))
