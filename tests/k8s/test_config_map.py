"""The ConfigMap's text is a configuration that the sidecar takes."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.config.loading import load_settings
from service.config.settings import Settings
from tests.k8s.manifests import CONFIG_MAP, SECRET, read_manifest

DSN_FILE = "/etc/sidelook-secret/dsn"
MIB = 1024 * 1024


def load(folder: Path, text: str) -> Settings:
    """The settings as the sidecar would read them in the pod, with the secret elsewhere."""
    configuration, dsn = folder / "sidelook.yaml", folder / "dsn"
    configuration.write_text(text.replace(DSN_FILE, str(dsn)))
    dsn.write_text(read_manifest(SECRET)["stringData"]["dsn"])
    dsn.chmod(0o440)
    return load_settings(configuration, {})


def test_config_map_is_a_configuration(tmp_path: Path) -> None:
    """What stands in the ConfigMap, together with the secret's example, starts the sidecar."""
    settings = load(tmp_path, read_manifest(CONFIG_MAP)["data"]["sidelook.yaml"])

    assert settings.listen.unix == Path("/run/sidelook/sidelook.sock")
    assert (settings.listen.http, str(settings.listen.health)) == (None, "0.0.0.0:8816")
    assert settings.limits.memory_bytes == 512 * MIB
    assert list(settings.dimensions) == ["customers"]


def test_misspelt_config_map_is_refused(tmp_path: Path) -> None:
    """A key that the sidecar does not know is named with its path."""
    text = read_manifest(CONFIG_MAP)["data"]["sidelook.yaml"].replace("health:", "helth:")

    with pytest.raises(ConfigurationError, match=r"listen\.helth.*health"):
        load(tmp_path, text)
