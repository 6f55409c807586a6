"""docs/reference/commands.md: the commands with options, by typer's generator, and exit codes."""

import re
from collections.abc import Iterator

from typer import Context
from typer.cli import get_docs_for_click
from typer.core import TyperGroup
from typer.main import get_command

from service.commands.application import application
from service.commands.exit_code import ExitCode
from service.version import COMMAND
from tools.reference.markdown import bullets, examples, page, paragraph, unwrapped

_TITLES = {"**Usage**:", "**Arguments**:", "**Options**:"}  # of parts that explain themselves

_EXIT_CODES = {
    ExitCode.OK: "Success.",
    ExitCode.KEYS_FAILED: "`lookup`: a key has no answer. `doctor`: a finding is an error.",
    ExitCode.USAGE: "The command line is invalid.",
    ExitCode.DATA: "A key or the request does not fit the dimension.",
    ExitCode.NO_INPUT: "The dimension does not exist.",
    ExitCode.UNAVAILABLE: "No sidecar responds at the endpoint.",
    ExitCode.SOFTWARE: "A query was refused, or a defect; the message has the reason.",
    ExitCode.SYSTEM: "A call of the operating system failed.",
    ExitCode.TRY_AGAIN: "Table, backend or sidecar are unavailable for now; try again later.",
    ExitCode.NO_PERMISSION: "The token is invalid, or the role may not read the table.",
    ExitCode.CONFIG: "The configuration is invalid.",
}


def commands_page() -> str:
    """The text of the page."""
    texts = examples("commands")
    group = command_group()
    names = group.list_commands(Context(group))
    parts = [texts[""], "## Exit codes", texts["Exit codes"]]
    parts.append(bullets(f"{code.value}: {meaning}" for code, meaning in _EXIT_CODES.items()))
    parts += ["## Setup of the examples", texts["Setup of the examples"]]
    for name in names:
        parts += [f"## {COMMAND} {name}", *_usage(group, name), texts[name]]
    return page("Commands", parts)


def command_group() -> TyperGroup:
    """The application as a group of commands."""
    group = get_command(application)
    assert isinstance(group, TyperGroup)
    return group


def _usage(group: TyperGroup, name: str) -> Iterator[str]:
    """Help, usage, arguments and options of a command."""
    command = group.get_command(Context(group), name)
    assert command is not None
    generated = get_docs_for_click(obj=command, ctx=Context(command), call_prefix=COMMAND)
    _title, _, docs = generated.partition("\n")
    options: list[str] = []  # arguments first
    for block in re.split(r"\n\n(?!\n)", docs.strip()):
        if block.startswith("```"):
            usage = block.replace("```console\n$ ", "```text\n")
            yield re.sub(r"\{(\w+)\}", r"\1", usage)
        elif block.startswith("* "):
            lines = re.sub(r"(`\w+) <[^`]+>`", r"\1`", block).splitlines()
            options += [line.removeprefix("* ") for line in lines if "`--help`" not in line]
        elif block not in _TITLES:
            yield from map(paragraph, unwrapped(block))
    if options:
        yield bullets(options)
