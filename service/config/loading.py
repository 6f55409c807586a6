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
PATH_KEYS = frozenset(
    {
        *("unix", "token_file", "admin_token_file", "dsn_file", "path"),
        *("password_file", "ca_file", "certificate_file"),
        *("cert_file", "key_file", "client_ca_file", "headers_file"),
    }
)


def anchored_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values with absolute paths; relative ones start at the folder."""
    anchored = {name: _anchored(name, value, folder) for name, value in values.items()}
    dimensions = values.get("dimensions")
    if isinstance(dimensions, Mapping):  # their names may be equal to keys of paths
        of_dimensions = {name: _anchored("", each, folder) for name, each in dimensions.items()}
        anchored["dimensions"] = of_dimensions
    return anchored


def _anchored(key: str, value: object, folder: Path) -> object:
    if isinstance(value, str) and key in PATH_KEYS:
        return str(folder / value)
    if isinstance(value, Mapping) and key not in {"default", "types"}:  # with any names
        return {name: _anchored(name, each, folder) for name, each in value.items()}
    return value


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
    layers = [anchored_paths(layer, file.parent) for layer in (environment.values, document.values)]
    allows_secrets = next(
        (layer["allow_inline_secrets"] for layer in layers if "allow_inline_secrets" in layer),
        False,
    )
    if allows_secrets is not True:
        faults += inline_secrets(document.values)
    try:
        settings = Settings(*layers)
    except ValidationError as error:
        origins = environment.origins
        faults += fault_lines(error, Settings, origins=origins, variables=variables)
        raise ConfigurationError(faults) from error
    if faults:
        raise ConfigurationError(faults)
    return settings
