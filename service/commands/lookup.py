"""`lookup`: ask a running sidecar for rows, as a Spark task would.

For a handful of keys; it types them by the dimension's schema, which the sidecar tells.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from service.commands.answer_table import answer_table, failures
from service.commands.client_files import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    KeyFileOption,
)
from service.commands.endpoint import DEFAULT, EndpointOption, parse_endpoint
from service.commands.exit_code import ExitCode
from service.commands.key_value import key_value
from service.commands.print_table import print_table
from service.commands.sidecar_client import SidecarClient
from service.commands.token_file import TokenOption

FAILURES = frozenset({"error", "timeout"})  # outcomes that are no answer


def lookup(  # noqa: PLR0913 -- each is an option of the command line
    dimension: Annotated[str, typer.Argument(metavar="DIMENSION")],
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="Text or JSON; parts of composite ones by comma; after -- if one begins with -.",
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    endpoint: EndpointOption = DEFAULT,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
) -> None:
    """Look keys up; exit code 1 if any of them ended in an error or a timeout."""
    files = ClientFiles(ca_file, cert_file, key_file)
    client = SidecarClient(parse_endpoint(endpoint, files), dimension, token=token)
    answer = asyncio.run(_ask(client, keys))
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        print_table(answer_table(keys, answer))
        for failure in failures(answer):
            typer.echo(failure, err=True)
    if not FAILURES.isdisjoint(answer["outcomes"]):
        raise typer.Exit(ExitCode.KEYS_FAILED)


async def _ask(client: SidecarClient, keys: Sequence[str]) -> dict[str, Any]:
    async with client:
        fields = await client.key_fields()
        return await client.lookup([key_value(key, fields) for key in keys])
