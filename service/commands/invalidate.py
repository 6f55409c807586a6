"""`invalidate`: make a running sidecar forget rows that have changed.

Changes no data; the next lookup reads the row anew.
"""

import asyncio
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
from service.commands.key_arguments import DimensionArgument, key_value
from service.commands.sidecar_client import DimensionClient, SidecarClient


def invalidate(  # noqa: PLR0913 -- each is an option of the command line
    dimension: DimensionArgument,
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
    """Forget single keys, or all, which are then read anew.

    An admin's request, where the sidecar has an auth.admin_token_file.
    """
    if bool(keys) == forgets_all:
        raise typer.BadParameter("give keys, or --all, and not both")
    files = ClientFiles(ca_file, cert_file, key_file)
    client = SidecarClient(parse_endpoint(endpoint, files), token=token)
    answer = asyncio.run(_ask(client, dimension, None if forgets_all else keys))
    typer.echo(f"invalidated: {answer['invalidated']}")


async def _ask(client: SidecarClient, name: str, keys: Sequence[str] | None) -> dict[str, Any]:
    async with client:
        dimension = DimensionClient(client, name)
        if keys is None:
            return await dimension.invalidate(None)
        fields = await dimension.key_fields()
        return await dimension.invalidate([key_value(key, fields) for key in keys])
