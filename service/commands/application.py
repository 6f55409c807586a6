"""Command line application: the list of commands, and the mapping of errors to exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from lookup_core.errors import ConfigurationError, SidelookError
from service.commands.configuration import check_config, gen_triggers, schema
from service.commands.doctor import doctor
from service.commands.exit_code import ExitCode, exit_code
from service.commands.key_commands import explain, invalidate, lookup
from service.commands.serve import serve
from service.commands.status import status
from service.commands.tables import shown
from service.version import COMMAND, own_version, program_name

_STANDARD_ERROR = 2  # a file descriptor

application = typer.Typer(
    help="Sidelook's sidecar: batched and cached lookups for all tasks of an executor.",
    # Shells complete names of commands, and `python -m service` is none.
    add_completion=program_name() == COMMAND,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"sidelook {own_version()}")
        raise typer.Exit


@application.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print name and version.",
        ),
    ] = False,
) -> None:
    """Define the options before the command; their callbacks handle them."""


for _command in (
    *(serve, check_config, schema, gen_triggers),
    *(lookup, explain, status, invalidate, doctor),
):
    application.command()(_command)


def main() -> None:
    """Run the command of this process; raises SystemExit with its exit code."""
    _take_standard_numbers()
    sys.exit(run(sys.argv[1:]))


def _take_standard_numbers() -> None:
    """Open 0, 1 and 2 if they are closed: libraries would write into the next file or socket."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= _STANDARD_ERROR:
        number = os.dup(number)
    os.close(number)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors are printed on stderr."""
    program = program_name()
    try:
        # Not standalone: typer's own exit codes are not those of sysexits.h.
        ended = get_command(application).main(
            args=arguments, prog_name=program, standalone_mode=False
        )
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)  # if the command is known
        command = context.command_path if context else program
        return _refused([f"error: {error.format_message()} (see {command} --help)"], ExitCode.USAGE)
    except ConfigurationError as error:
        return _refused(error.faults, ExitCode.CONFIG)
    except SidelookError as error:
        return _refused([f"error: {error.detail}"], exit_code(error))
    except OSError as error:
        return _refused([f"error: {error}"], ExitCode.SYSTEM)
    return int(ended or ExitCode.OK)


def _refused(lines: Sequence[str], code: ExitCode) -> int:
    for line in lines:
        typer.echo(shown(line).plain, err=True)  # escaped: parts come from a sidecar
    return code
