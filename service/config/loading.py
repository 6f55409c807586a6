"""Reading the configuration: file, then environment over it, then all checks.

Lists all faults at once, so that nobody has to start again for each.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from lookup_core.errors import ConfigurationError
from service.config.anchored_paths import anchored_paths
from service.config.environment import read_environment
from service.config.fault_lines import fault_lines
from service.config.inline_secrets import inline_secrets
from service.config.kubernetes_manifest import manifest_fault
from service.config.settings import Settings
from service.config.yaml_document import read_yaml_document

# What runs when no file is named: dimensions that need no database.
EMBEDDED = Path(__file__).parents[2] / "examples" / "parquet.yaml"


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings in the file, or the embedded ones, with the environment's over them.

    Raises ConfigurationError with every fault of file and environment.
    """
    file = (path or EMBEDDED).absolute()
    document = read_yaml_document(file)
    if fault := manifest_fault(file, document.values):
        raise ConfigurationError([fault])
    environment = read_environment(environ, document.values)
    faults = [*document.faults, *environment.faults]
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
        faults += fault_lines(error, Settings, origins=environment.origins)
        raise ConfigurationError(faults) from error
    if faults:
        raise ConfigurationError(faults)
    return settings
