"""Commands that query no sidecar: help, exit codes, and the configuration that they take.

What whole commands print stands in `transcripts/local.txt`.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # it ships no types
import pytest

from lookup_core.errors import (
    BackendError,
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)
from service.commands.application import run
from service.commands.exit_code import ExitCode, exit_code
from service.commands.serve import run_on_event_loop
from service.config.loading import EMBEDDED
from service.connectors.postgres.triggers import trigger_sql
from service.version import own_version

ROOT = Path(__file__).parents[3]
OF_DIMENSIONS = ["gen-triggers", "lookup", "explain", "invalidate"]
COMMANDS = [*OF_DIMENSIONS, "serve", "check-config", "schema", "status", "doctor"]
OPTIONS_OF_DOCTOR = {
    *("--config", "--endpoint", "--without-sidecar", "--executors", "--kubernetes"),
    *("--pod-template", "--spark-conf", "--spark", "--network-policy", "--json"),
}
NOWHERE = "postgresql://127.0.0.1:1/shop"
Printed = pytest.CaptureFixture[str]


pytestmark = pytest.mark.usefixtures("logging_as_before")


def test_help_names_commands_and_options(capsys: Printed) -> None:
    """Help is no error; it lists each command, each option of the doctor, and its exit codes."""
    codes = [run(["--help"])]
    of_all = capsys.readouterr().out
    codes.append(run(["doctor", "--help"]))
    of_doctor = capsys.readouterr().out
    codes.append(run(["--version"]))

    assert (codes, [name for name in COMMANDS if name not in of_all]) == ([0, 0, 0], [])
    lines = [line.split() for line in of_doctor.splitlines()]
    assert {words[0] for words in lines if len(words) > 2} >= OPTIONS_OF_DOCTOR
    assert "78: the configuration" in " ".join(of_doctor.split())
    assert capsys.readouterr() == (f"sidelook {own_version()}\n", "")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_small_terminal(
    command: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns no line is longer, no sentence is cut, and no default is split."""
    monkeypatch.setenv("COLUMNS", "80")

    run([*command.split(), "--help"])

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    cut = [line for line in lines if line.endswith("...") and not line.startswith("Usage:")]
    assert [*cut, *(line for line in lines if line.endswith("[default:"))] == []
    is_explained = any("Its name, as in the configuration." in line for line in lines)
    assert is_explained == (command in OF_DIMENSIONS)


@pytest.mark.full
def test_module_is_the_program() -> None:
    """`python -m service` ends with the exit code of its command, without a traceback."""
    command = [sys.executable, "-m", "service", "check-config", "/nope.yaml"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    fault = "/nope.yaml: cannot be read: No such file or directory\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (78, "", fault)


def test_schema_is_printed(capsys: Printed) -> None:
    """`schema` prints a JSON Schema that names its dialect and refuses unknown keys."""
    code = run(["schema"])

    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    dialect = "https://json-schema.org/draft/2020-12/schema"
    assert (code, schema["$schema"], schema["additionalProperties"]) == (0, dialect, False)
    assert {"auth", "listen", "limits", "dimensions"} <= set(schema["properties"])


@pytest.mark.parametrize(
    ("refresh", "options", "channel"),
    [
        ("", [], "sidelook_orders"),
        (", refresh: {listen: {channel: shop}}", [], "shop"),
        ("", ["--partitioned"], "sidelook_orders"),
    ],
)
def test_triggers_are_printed(
    tmp_path: Path, capsys: Printed, refresh: str, options: list[str], channel: str
) -> None:
    """`gen-triggers` prints the script of table, key and channel, and that no database answers."""
    config = tmp_path / "c.yaml"
    source = f'{{kind: postgres, dsn: "{NOWHERE}", table: "public.Orders"}}'
    config.write_text(f"dimensions: {{orders: {{source: {source}, key: [id, Part]{refresh}}}}}")

    code = run(["gen-triggers", "orders", "--config", str(config), *options])

    is_partitioned = bool(options)
    script = trigger_sql(
        "public.orders", ["id", "Part"], channel=channel, is_partitioned=is_partitioned
    )
    note = "nothing listens at the address of the DSN (127.0.0.1:1); a partitioned table needs "
    printed = capsys.readouterr()
    assert (code, printed.out) == (0, script)
    assert printed.err.startswith(f"the table is not checked: public.Orders: {note}--partitioned")


def test_example_is_logged(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --config, `serve` uses the example, and logs a warning with its path."""
    monkeypatch.setenv("SIDELOOK_FOO", "1")
    served = run(["serve"])
    logged, fault = capsys.readouterr().err.splitlines()

    event = json.loads(logged)
    assert (event["event"], event["level"]) == ("serve.example_configuration", "warning")
    assert (event["file"], event["remedy"]) == (str(EMBEDDED), "name yours with --config FILE")
    assert (served, fault.partition(":")[0]) == (78, "foo")


@pytest.mark.parametrize(
    ("error", "code", "number"),
    [
        (ConfigurationError(["a"]), ExitCode.CONFIG, os.EX_CONFIG),
        (SidecarUnreachable("e", "r"), ExitCode.UNAVAILABLE, os.EX_UNAVAILABLE),
        (InvalidRequest(ErrorCode.UNKNOWN_DIMENSION, "d"), ExitCode.NO_INPUT, os.EX_NOINPUT),
        (InvalidRequest(ErrorCode.UNAUTHORIZED, "d"), ExitCode.NO_PERMISSION, os.EX_NOPERM),
        (InvalidRequest(ErrorCode.FORBIDDEN, "d"), ExitCode.NO_PERMISSION, os.EX_NOPERM),
        (InvalidRequest(ErrorCode.KEY_TYPE, "d"), ExitCode.DATA, os.EX_DATAERR),
        (BackendError(ErrorCode.OVERLOADED, "d"), ExitCode.TRY_AGAIN, os.EX_TEMPFAIL),
        (BackendError(ErrorCode.INTERNAL, "d"), ExitCode.SOFTWARE, os.EX_SOFTWARE),
    ],
)
def test_each_consequence_has_an_exit_code(
    error: SidelookError, code: ExitCode, number: int
) -> None:
    """The numbers are those of sysexits.h, so scripts can distinguish the errors."""
    assert exit_code(error) is code
    assert (code, ExitCode.USAGE, ExitCode.SYSTEM) == (number, os.EX_USAGE, os.EX_OSERR)


def test_uvloop_runs_the_sidecar() -> None:
    """A single error is unwrapped from its exception groups; several errors stay a group."""
    loops: list[str] = []

    async def main(*errors: Exception) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)
        async with asyncio.TaskGroup():
            raise ExceptionGroup("some", errors)

    with pytest.raises(PermissionError, match="no"):
        run_on_event_loop(main(PermissionError("no")))
    with pytest.raises(ExceptionGroup, match="some"):
        run_on_event_loop(main(ValueError("a"), ValueError("b")))
    assert loops == ["uvloop"] * 2
