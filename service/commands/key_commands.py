"""`lookup`: ask a running sidecar for rows, as a Spark task would.

For a handful of keys; it types them by the dimension's schema, which the sidecar tells.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from service.commands.endpoint import (
    DEFAULT,
    CaFileOption,
    CertFileOption,
    ClientFiles,
    EndpointOption,
    KeyFileOption,
    TokenOption,
    parse_endpoint,
)
from service.commands.exit_code import ExitCode
from service.commands.key_arguments import DimensionArgument, KeyField, key_value
from service.commands.sidecar_client import DimensionClient, SidecarClient
from service.commands.tables import answer_table, failures, print_table

FAILURES = frozenset({"error", "timeout"})  # outcomes that are no answer


def lookup(  # noqa: PLR0913 -- each is an option of the command line
    dimension: DimensionArgument,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="Text or JSON; parts of a composite key by comma; after -- if one begins with -.",
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
    """Look keys up, as a Spark task would.

    Exit code 1 if any of them ended in an error or a timeout.
    """
    files = ClientFiles(ca_file, cert_file, key_file)
    client = SidecarClient(parse_endpoint(endpoint, files), token=token)
    fields, answer = asyncio.run(_ask(client, dimension, keys))
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        print_table(answer_table(keys, answer))
        # Below the table, also where both streams are one: it explains words that stand there.
        for failure in failures(answer, fields):
            typer.echo(failure)
    if not FAILURES.isdisjoint(answer["outcomes"]):
        raise typer.Exit(ExitCode.KEYS_FAILED)


async def _ask(
    client: SidecarClient, name: str, keys: Sequence[str]
) -> tuple[list[KeyField], dict[str, Any]]:
    async with client:
        dimension = DimensionClient(client, name)
        fields = await dimension.key_fields()
        return fields, await dimension.lookup([key_value(key, fields) for key in keys])
