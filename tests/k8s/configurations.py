"""Whether the configuration in a ConfigMap is one that the sidecar takes, as `check-config` says.

The files of the secret are supposed; whether the pod mounts them is `pod_rules`'s business.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from lookup_core.errors import ConfigurationError
from service.config.loading import inline_secrets, load_settings
from service.config.yaml_document import read_yaml_document
from tests.k8s.manifests import Manifest

KEY = "sidelook.yaml"
SECRET_FOLDER = "/etc/sidelook-secret"
ANY_SECRET = "example:0123456789abcdef0123456789abcdef"  # will do as a token, and as a header


def configuration_faults(manifest: Manifest, secrets: Mapping[str, str]) -> list[str]:
    """What is wrong with it; nothing where there is none. The secrets are {file name: content}."""
    if manifest["kind"] != "ConfigMap" or KEY not in manifest.get("data", {}):
        return []
    with TemporaryDirectory() as work:
        faults = _faults(manifest["data"][KEY], secrets, Path(work))
        return [f"{KEY}: {_moved_back(fault, work)}" for fault in faults]


def _faults(text: str, secrets: Mapping[str, str], folder: Path) -> list[str]:
    for name in re.findall(rf"{SECRET_FOLDER}/([-.\w]+)", text):
        (folder / name).write_text(secrets.get(name, ANY_SECRET))
        (folder / name).chmod(0o440)
    file = folder / KEY
    file.write_text(text.replace(SECRET_FOLDER, str(folder)))
    try:
        load_settings(file, {})
    except ConfigurationError as error:
        return list(error.faults)
    # A ConfigMap is no place for a password, whatever it allows itself.
    return list(inline_secrets(read_yaml_document(file).values))


def _moved_back(fault: str, work: str) -> str:
    return fault.removeprefix(f"{work}/{KEY}: ").replace(work, SECRET_FOLDER)
