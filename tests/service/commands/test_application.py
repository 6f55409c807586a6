"""The commands under one name."""

import pytest

from service.commands.application import run

Printed = pytest.CaptureFixture[str]


def test_help_names_every_command(capsys: Printed) -> None:
    """Help is not an error, and leaves no command out."""
    code = run(["--help"])

    printed = capsys.readouterr().out
    commands = [
        "serve",
        "check-config",
        "schema",
        "gen-triggers",
        "lookup",
        "explain",
        "invalidate",
        "doctor",
    ]
    assert (code, [name for name in commands if name not in printed]) == (0, [])


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
