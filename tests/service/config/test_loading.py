"""The configuration as the commands load it."""

from pathlib import Path

import pytest

from lookup_core.errors import ConfigurationError
from service.config.loading import EMBEDDED, load_settings
from service.config.source import PostgresSource

EXAMPLES = Path(__file__).parents[3] / "examples"
ADDRESS = "postgresql://u:geheim@h/d"
SECRET = f"dimensions: {{a: {{source: {{kind: postgres, table: t, dsn: '{ADDRESS}'}}, key: [k]}}}}"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file beside which others may stand."""
    path = tmp_path / "sidelook.yaml"
    path.write_text("dimensions: {a: {source: {kind: parquet, path: a.parquet}, key: [k]}}")
    return path


def faults_of(path: Path, **environ: str) -> tuple[str, ...]:
    """What is wrong with the file and the environment."""
    with pytest.raises(ConfigurationError) as raised:
        load_settings(path, environ)
    return raised.value.faults


@pytest.mark.parametrize(
    ("example", "dimensions"),
    [
        ("parquet.yaml", ["airports", "airlines"]),
        ("postgres.yaml", ["customers", "weather", "airlines"]),
    ],
)
def test_examples_are_right(example: str, dimensions: list[str]) -> None:
    """What users copy passes all checks."""
    assert list(load_settings(EXAMPLES / example, {}).dimensions) == dimensions


def test_no_file_means_the_embedded_one() -> None:
    """`serve` without a file runs the Parquet example."""
    assert load_settings(None, {}) == load_settings(EXAMPLES / "parquet.yaml", {})
    assert EMBEDDED.is_file()


def test_environment_wins_over_the_file(config: Path) -> None:
    """A variable changes one value of a dimension in the file, and nothing else of it."""
    settings = load_settings(
        config, {"SIDELOOK_DIMENSIONS__A__TIMEOUT": "3s", "SIDELOOK_LISTEN__HTTP": "127.0.0.1:9"}
    )

    assert (settings.dimensions["a"].timeout_s, settings.dimensions["a"].key) == (3.0, ("k",))
    assert str(settings.listen.http) == "127.0.0.1:9"


def test_relative_paths_start_at_the_file(config: Path, tmp_path: Path) -> None:
    """Paths of file and environment mean the same wherever the command is run."""
    settings = load_settings(config, {"SIDELOOK_LISTEN__UNIX": "s.sock"})

    assert settings.listen.unix == tmp_path / "s.sock"
    assert settings.dimensions["a"].source.model_dump()["path"] == tmp_path / "a.parquet"


def test_faults_of_all_kinds_come_at_once(config: Path) -> None:
    """Repeated keys, variables and wrong values stand in one list."""
    config.write_text(config.read_text() + "\nlimits: {memory: 5, memory: 6}\nlisten: {htp: x}\n")

    found = faults_of(config, SIDELOOK_FOO="1", SIDELOOK_DIMENSIONS__A__KEY="[k")

    assert [fault.split(": ")[0] for fault in found] == [
        "limits.memory",  # twice
        "SIDELOOK_DIMENSIONS__A__KEY",
        "listen.htp",
        "limits.memory",  # no unit
        "foo",
    ]
    assert found[-1].endswith("(set by SIDELOOK_FOO)")


def test_passwords_in_the_file_are_refused(config: Path) -> None:
    """A password in the file stops the start, and no fault shows it."""
    config.write_text(SECRET)

    (fault,) = faults_of(config)

    assert fault == (
        "dimensions.a.source.dsn: holds a password; put it in dsn_file, "
        "or set allow_inline_secrets: true"
    )


@pytest.mark.parametrize("environ", [{}, {"SIDELOOK_ALLOW_INLINE_SECRETS": "true"}])
def test_passwords_in_the_file_may_be_allowed(config: Path, environ: dict[str, str]) -> None:
    """Who says so in the file or in the environment may keep them there; they stay unshown."""
    config.write_text(SECRET + ("" if environ else "\nallow_inline_secrets: true"))

    settings = load_settings(config, environ)

    assert "geheim" not in f"{settings!r} {settings} {settings.model_dump()}"


def test_environment_overrules_the_permission(config: Path) -> None:
    """A variable can take back what the file allows."""
    config.write_text(f"{SECRET}\nallow_inline_secrets: true")

    assert len(faults_of(config, SIDELOOK_ALLOW_INLINE_SECRETS="false")) == 1


def test_passwords_in_the_environment_are_fine(config: Path) -> None:
    """The environment is a place for secrets."""
    config.write_text("dimensions: {a: {source: {kind: postgres, table: t}, key: [k]}}")

    source = load_settings(config, {"SIDELOOK_DIMENSIONS__A__SOURCE__DSN": ADDRESS})

    assert isinstance(source.dimensions["a"].source, PostgresSource)
    assert source.dimensions["a"].source.read_dsn() == ADDRESS


def test_secret_may_be_elsewhere(config: Path, tmp_path: Path) -> None:
    """A secret that only the sidecar's machine has is told with the variable that replaces it."""
    config.write_text(
        "dimensions: {my-shop: {key: [k], "
        "source: {kind: postgres, table: t, dsn_file: /etc/none/dsn}}}"
    )
    variable = "SIDELOOK_DIMENSIONS__MY_SHOP__SOURCE__DSN_FILE"
    copy = tmp_path / "dsn"
    copy.write_text(ADDRESS)
    copy.chmod(0o400)

    told = "dimensions.my-shop.source.dsn_file: cannot read {}: No such file or directory"
    hint = f"; if it is elsewhere on this machine, set {variable}=/PATH/OF/FILE"
    assert faults_of(config) == (told.format("/etc/none/dsn") + hint,)
    assert faults_of(config, **{variable: "/x"}) == (f"{told.format('/x')} (set by {variable})",)
    assert list(load_settings(config, {variable: str(copy)}).dimensions) == ["my-shop"]


def test_manifest_is_one_fault(config: Path) -> None:
    """A ConfigMap in the file's place is told as such, not as a list of unknown keys."""
    config.write_text("{apiVersion: v1, kind: ConfigMap, data: {sidelook.yaml: x}}")

    (fault,) = faults_of(config)

    assert fault.startswith(f"{config}: is a Kubernetes ConfigMap; check what stands below")


def test_broken_file_is_one_fault(config: Path) -> None:
    """A file that is not YAML is told as such, not as a list of missing keys."""
    config.write_text("dimensions: {")

    (fault,) = faults_of(config)

    assert fault.startswith(f"{config}: not YAML: ")
