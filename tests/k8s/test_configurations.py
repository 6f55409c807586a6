"""The configuration in a ConfigMap is read by the sidecar's own code, and holds no password."""

import pytest

from tests.k8s.configurations import configuration_faults
from tests.k8s.manifests import CONFIG_MAP, SECRET, Manifest, read_manifest

SECRETS = read_manifest(SECRET)["stringData"]
ADDRESS = "dsn: postgresql://user:password@host/database"
TOKEN = "auth: { token_file: /etc/sidelook-secret/token }"
# {what somebody wrote instead of the timeout: the beginning of what is told}
FAULTS = {
    "timeoutt: 2s": "sidelook.yaml: dimensions.customers.timeoutt: ",
    "timeout: soon": "sidelook.yaml: dimensions.customers.timeout: ",
    "timeout: [": "sidelook.yaml: not YAML: ",
}


def config_map(old: str, new: str) -> Manifest:
    """The shipped ConfigMap with another text in its configuration."""
    manifest = read_manifest(CONFIG_MAP)
    text = manifest["data"]["sidelook.yaml"]
    assert old in text
    manifest["data"]["sidelook.yaml"] = text.replace(old, new)
    return manifest


def test_shipped_configuration_has_no_fault() -> None:
    """The secret's files are those of the example."""
    assert configuration_faults(read_manifest(CONFIG_MAP), SECRETS) == []


@pytest.mark.parametrize("text", FAULTS)
def test_wrong_configuration_is_told(text: str) -> None:
    """What `check-config` would say is said, without the folder in which it was read."""
    (fault,) = configuration_faults(config_map("timeout: 2s", text), SECRETS)

    assert fault.startswith(FAULTS[text])


def test_password_in_a_config_map_is_told() -> None:
    """Even if the configuration allows passwords: everybody may read a ConfigMap."""
    manifest = config_map("dsn_file: /etc/sidelook-secret/dsn", ADDRESS)
    manifest["data"]["sidelook.yaml"] += "allow_inline_secrets: true\n"

    (fault,) = configuration_faults(manifest, SECRETS)

    assert fault.startswith("sidelook.yaml: dimensions.customers.source.dsn: holds a password")


def test_other_files_of_the_secret_are_supposed() -> None:
    """Tokens are not in the example of the secret; that they are named is no fault."""
    manifest = read_manifest(CONFIG_MAP)
    manifest["data"]["sidelook.yaml"] += f"{TOKEN}\n"

    assert configuration_faults(manifest, SECRETS) == []


def test_other_config_maps_have_no_configuration() -> None:
    """Dashboards and pod templates are not read as one, nor is a ConfigMap without texts."""
    assert configuration_faults({"kind": "ConfigMap", "data": {"one": "[]"}}, SECRETS) == []
    assert configuration_faults({"kind": "ConfigMap", "binaryData": {}}, SECRETS) == []
