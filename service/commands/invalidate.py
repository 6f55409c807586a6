"""`invalidate`: make a running sidecar forget rows that have changed.

Changes no data; the next lookup reads the row anew.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from service.commands.client_files import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    KeyFileOption,
)
from service.commands.endpoint import DEFAULT, EndpointOption, parse_endpoint
from service.commands.key_value import key_value
from service.commands.sidecar_client import SidecarClient
from service.commands.token_file import TokenOption


def invalidate(  # noqa: PLR0913 -- each is an option of the command line
    dimension: Annotated[str, typer.Argument(metavar="DIMENSION")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", help="As for lookup; or give --all."),
    ] = None,
    *,
    forgets_all: Annotated[bool, typer.Option("--all", help="Forget the whole cache.")] = False,
    endpoint: EndpointOption = DEFAULT,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
) -> None:
    """Forget single keys, or all; an admin's request where the sidecar knows admins."""
    if bool(keys) == forgets_all:
        raise typer.BadParameter("give keys, or --all, and not both")
    files = ClientFiles(ca_file, cert_file, key_file)
    client = SidecarClient(parse_endpoint(endpoint, files), dimension, token=token)
    answer = asyncio.run(_ask(client, None if forgets_all else keys))
    typer.echo(f"invalidated: {answer['invalidated']}")


async def _ask(client: SidecarClient, keys: Sequence[str] | None) -> dict[str, Any]:
    async with client:
        if keys is None:
            return await client.invalidate(None)
        fields = await client.key_fields()
        return await client.invalidate([key_value(key, fields) for key in keys])
