"""`status`: what a running sidecar does at this moment.

One question, whose answer the status page shows, too; it changes nothing.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lookup_core.errors import SidecarUnreachable
from service.commands.answer_table import shown
from service.commands.client_files import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    KeyFileOption,
)
from service.commands.endpoint import DEFAULT, EndpointOption, parse_endpoint
from service.commands.print_table import print_table
from service.commands.sidecar_client import NO_SIDECAR, SidecarClient
from service.commands.status_health import health_lines
from service.commands.status_tables import (
    NO_CHANNELS,
    NO_ERRORS,
    caches_table,
    channels_table,
    errors_table,
    keys_table,
    stores_table,
    summary_line,
)
from service.commands.token_file import TokenOption

_PARTS = frozenset({"memory", "not_ready", "dimensions", "channels"})


def status(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    endpoint: EndpointOption = DEFAULT,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
) -> None:
    """Tell what the sidecar does at this moment.

    How it is and why, how lookups of keys ended, what it asks of its stores, its caches, what
    failed lately, and the channels of Spark's tasks.
    """
    where = parse_endpoint(endpoint, ClientFiles(ca_file, cert_file, key_file))
    answer = asyncio.run(_ask(SidecarClient(where, token=token)))
    if not answer.keys() >= _PARTS:
        raise SidecarUnreachable(where.text, NO_SIDECAR)
    if as_json:
        typer.echo(json.dumps(answer))
        return
    try:
        _print(answer)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise SidecarUnreachable(where.text, NO_SIDECAR) from error


async def _ask(client: SidecarClient) -> dict[str, Any]:
    async with client:
        return await client.ask("GET", "/v1/status")


def _print(answer: Mapping[str, Any]) -> None:
    for line in (summary_line(answer), *health_lines(answer)):
        typer.echo(shown(line).plain)
    print_table(keys_table(answer["dimensions"]))
    print_table(stores_table(answer["dimensions"]))
    print_table(caches_table(answer["dimensions"]))
    errors = errors_table(answer["dimensions"])
    if errors.rows:
        print_table(errors)
    else:
        typer.echo(NO_ERRORS)
    if answer["channels"]:
        print_table(channels_table(answer["channels"], time.time()))
    else:
        typer.echo(NO_CHANNELS)
