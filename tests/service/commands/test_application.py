"""The commands under one name."""

import pytest

from service.commands.application import run
from service.version import own_version

Printed = pytest.CaptureFixture[str]
COMMANDS = [
    "serve",
    "check-config",
    "schema",
    "gen-triggers",
    "lookup",
    "explain",
    "status",
    "invalidate",
    "doctor",
]


def test_help_names_every_command(capsys: Printed) -> None:
    """Help is not an error, and leaves no command out."""
    code = run(["--help"])

    printed = capsys.readouterr().out
    assert (code, [name for name in COMMANDS if name not in printed]) == (0, [])


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_fits_a_small_terminal(
    command: list[str], capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 80 columns no line is longer, no sentence is cut, and no default is torn apart."""
    monkeypatch.setenv("COLUMNS", "80")

    run([*command, "--help"])

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    cut = [line for line in lines if line.endswith("...") and not line.startswith("Usage:")]
    assert [*cut, *(line for line in lines if line.endswith("[default:"))] == []


def test_version_is_told(capsys: Printed) -> None:
    """Name and version, and nothing else is done."""
    code = run(["--version"])

    assert (code, capsys.readouterr()) == (0, (f"sidelook {own_version()}\n", ""))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([], "Missing command."),
        (["frob"], "No such command 'frob'."),
        (["lookup", "a"], "Missing argument 'KEY'."),
        (["lookup", "a", "k", "--frob"], "No such option: --frob"),
        (["lookup", "a", "k", "--endpoint", "x"], "Invalid value: 'x' is neither unix:///path"),
        (["lookup", "a", "k", "--token-file", "/x"], "cannot read /x: No such file or directory"),
        (["check-config"], "Missing argument 'FILE'."),
    ],
)
def test_usage_is_one_line(arguments: list[str], fault: str, capsys: Printed) -> None:
    """A wrong command line ends in 64 with one line that tells what is wrong."""
    code = run(arguments)

    (line,) = capsys.readouterr().err.splitlines()
    assert (code, line.startswith("error: "), fault in line) == (64, True, True)


@pytest.mark.parametrize(("arguments", "command"), [(["lookup", "a"], " lookup"), (["frob"], "")])
def test_hint_names_the_command(arguments: list[str], command: str, capsys: Printed) -> None:
    """Whose help is meant is told, as far as the command is known."""
    run(arguments)

    assert capsys.readouterr().err.endswith(f" (see python -m service{command} --help)\n")
