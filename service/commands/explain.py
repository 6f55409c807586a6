"""`explain`: where the answer to one key comes from, and why.

Asks for no row, so it changes nothing in the cache.
"""

import asyncio
import json
from typing import Annotated, Any

import typer
from rich.table import Table

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
from service.commands.key_arguments import DimensionArgument, key_value
from service.commands.sidecar_client import DimensionClient, SidecarClient
from service.commands.tables import print_table, shown


def explain(  # noqa: PLR0913 -- each is an option of the command line
    dimension: DimensionArgument,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Text or JSON; parts of a composite key by comma.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    endpoint: EndpointOption = DEFAULT,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
) -> None:
    """Tell where the answer to a key comes from, and why.

    Whether it is cached, how old its row is, and what else decides its answer.
    """
    files = ClientFiles(ca_file, cert_file, key_file)
    client = SidecarClient(parse_endpoint(endpoint, files), token=token)
    explanation = asyncio.run(_ask(client, dimension, key))
    if as_json:
        typer.echo(json.dumps(explanation))
        return
    table = Table(show_header=False)
    for name, value in explanation.items():
        table.add_row(shown(name), shown(value))
    print_table(table)


async def _ask(client: SidecarClient, name: str, key: str) -> dict[str, Any]:
    async with client:
        dimension = DimensionClient(client, name)
        fields = await dimension.key_fields()
        return await dimension.explain(key_value(key, fields))
