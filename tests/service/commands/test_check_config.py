"""The command `check-config`."""

from pathlib import Path

import pytest

from service.commands.application import run

EXAMPLES = Path(__file__).parents[3] / "examples"
FORM = "written as a number and a unit (ms, s, m, h, d)"
Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize(("example", "count"), [("parquet.yaml", 2), ("postgres.yaml", 3)])
def test_examples_pass(example: str, count: int, capsys: Printed) -> None:
    """What users copy is right, and no database is asked about it."""
    code = run(["check-config", str(EXAMPLES / example)])

    assert (code, capsys.readouterr()) == (0, (f"ok: {count} dimensions\n", ""))


def test_every_fault_is_a_line(tmp_path: Path, capsys: Printed) -> None:
    """Three faults are three lines on stderr and exit code 78."""
    config = tmp_path / "c.yaml"
    config.write_text(
        "listen: {htp: x}\n"
        "dimensions: {a: {source: {kind: parquet, path: x}, key: [k], timeout: 5,"
        " cache: {tll: 1m}}}\n"
    )

    code = run(["check-config", str(config)])

    printed = capsys.readouterr()
    assert (code, printed.out, printed.err.splitlines()) == (
        78,
        "",
        [
            "listen.htp: unknown key; did you mean 'http'?",
            "dimensions.a.cache.tll: unknown key; did you mean 'ttl'?",
            f"dimensions.a.timeout: 5 is not a duration from 1ms to 1h, {FORM}",
        ],
    )


def test_parquet_files_are_looked_into(tmp_path: Path, capsys: Printed) -> None:
    """A file that is not there, or has no such key, is a fault of its dimension."""
    airports = EXAMPLES / "data" / "airports.parquet"
    config = tmp_path / "c.yaml"
    config.write_text(
        "dimensions:\n"
        "  a: {source: {kind: parquet, path: x.parquet}, key: [k]}\n"
        f"  b: {{source: {{kind: parquet, path: {airports}}}, key: [fa]}}\n"
    )

    code = run(["check-config", str(config)])

    assert (code, capsys.readouterr().err.splitlines()) == (
        78,
        [
            f"dimensions.a.source.path: {tmp_path}/x.parquet: no such file",
            f"dimensions.b.source.path: {airports}: no column fa; did you mean faa?",
        ],
    )


def test_missing_file_is_a_fault(capsys: Printed) -> None:
    """A file that is not there is named, without a traceback."""
    code = run(["check-config", "/nope.yaml"])

    assert (code, capsys.readouterr().err) == (
        78,
        "/nope.yaml: cannot be read: No such file or directory\n",
    )
