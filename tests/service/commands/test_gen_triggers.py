"""The command `gen-triggers`."""

from pathlib import Path

import pytest

from service.commands.application import run
from service.connectors.postgres.triggers import trigger_sql

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file with a dimension that names its channel, one that does not, and one of Parquet."""
    file = tmp_path / "c.yaml"
    source = '{kind: postgres, dsn: postgresql://localhost/shop, table: "public.Orders"}'
    file.write_text(
        "dimensions:\n"
        f"  orders: {{source: {source}, key: [id, Part], refresh: {{listen: {{channel: told}}}}}}\n"
        f"  parts: {{source: {source}, key: [id]}}\n"
        "  files: {source: {kind: parquet, path: x}, key: [id]}\n"
    )
    return file


@pytest.mark.parametrize(
    ("dimension", "key", "channel"),
    [("orders", ["id", "Part"], "told"), ("parts", ["id"], "sidelook_parts")],
)
def test_script_is_printed(
    config: Path, capsys: Printed, dimension: str, key: list[str], channel: str
) -> None:
    """The script is that of the dimension's table, key and channel, and nothing else is printed."""
    code = run(["gen-triggers", dimension, "--config", str(config)])

    script = trigger_sql("public.orders", key, channel=channel)
    assert (code, capsys.readouterr()) == (0, (script, ""))


def test_unknown_dimension_is_refused(config: Path, capsys: Printed) -> None:
    """A dimension that is not there is an error, which lists those that are, and where."""
    code = run(["gen-triggers", "order", "--config", str(config)])

    line = f"error: no dimension 'order'; configured in {config}: files, orders, parts\n"
    assert (code, capsys.readouterr()) == (66, ("", line))


def test_other_sources_have_no_triggers(config: Path, capsys: Printed) -> None:
    """A Parquet file has no triggers, and the error says so."""
    code = run(["gen-triggers", "files", "--config", str(config)])

    line = "error: dimension files is not of PostgreSQL; only its tables have triggers\n"
    assert (code, capsys.readouterr()) == (65, ("", line))


def test_example_is_told(capsys: Printed) -> None:
    """Without --config it is the example that is looked into, and that is said."""
    code = run(["gen-triggers", "airports"])

    first, second = capsys.readouterr().err.splitlines()
    assert (code, first.startswith("no --config was given: taking the example /")) == (65, True)
    assert first.endswith("examples/parquet.yaml; name yours with --config FILE")
    assert second.startswith("error: dimension airports is not of PostgreSQL")


def test_faulty_configuration_is_refused(tmp_path: Path, capsys: Printed) -> None:
    """A configuration that `serve` would refuse is refused in the same words."""
    code = run(["gen-triggers", "a", "--config", str(tmp_path / "none.yaml")])

    line = f"{tmp_path}/none.yaml: cannot be read: No such file or directory\n"
    assert (code, capsys.readouterr()) == (78, ("", line))
