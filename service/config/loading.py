"""Configuration loading: YAML file, environment variables, validation."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lookup_core.errors import ConfigurationError
from service.config.environment import read_environment
from service.config.fault_lines import fault_lines, known_variables, stray_variables
from service.config.postgres_address import holds_password
from service.config.settings import Settings
from service.config.yaml_document import manifest_fault, read_yaml_document

# The default configuration, which needs no database; the wheel has it, too.
EMBEDDED = Path(__file__).parents[1] / "example" / "sidelook.yaml"


def inline_secrets(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault for each DSN that contains a password, without the DSN."""
    dimensions = document.get("dimensions")
    for name, dimension in dimensions.items() if isinstance(dimensions, Mapping) else ():
        source = dimension.get("source") if isinstance(dimension, Mapping) else None
        dsn = source.get("dsn") if isinstance(source, Mapping) else None
        if isinstance(dsn, str) and holds_password(dsn):
            yield (
                f"dimensions.{name}.source.dsn: holds a password; put it in dsn_file, "
                "or set allow_inline_secrets: true"
            )


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Load a file, or the example, overridden by environment variables.

    Raises ConfigurationError with all faults of file and environment.
    """
    file = (path or EMBEDDED).absolute()
    document = read_yaml_document(file)
    if fault := manifest_fault(file, document.values):
        raise ConfigurationError([fault])
    environment = read_environment(environ, document.values)
    dimensions = document.values.get("dimensions")
    names = [*map(str, dimensions)] if isinstance(dimensions, Mapping) else []
    variables = [*known_variables(Settings, names)]
    faults = [*document.faults, *environment.faults, *stray_variables(environ, variables)]
    layers = (environment.values, document.values)
    allows_secrets = next(
        (layer["allow_inline_secrets"] for layer in layers if "allow_inline_secrets" in layer),
        False,
    )
    if allows_secrets is not True:
        faults += inline_secrets(document.values)
    try:
        settings = Settings(*layers, folder=file.parent)
    except ValidationError as error:
        origins = environment.origins
        faults += fault_lines(error, Settings, origins=origins, variables=variables)
        raise ConfigurationError(faults) from error
    if faults:
        raise ConfigurationError(faults)
    return settings
