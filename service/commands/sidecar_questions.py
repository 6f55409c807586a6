"""Plain questions to a running sidecar, for the doctor: one GET each, whatever the answer is.

For what the other commands ask of a dimension see `sidecar_client`.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from service.commands.endpoint import Endpoint
from service.commands.sidecar_client import mapped_errors
from service.doctor.sidecar_check import AskSidecar, SidecarAnswer

TIMEOUT = aiohttp.ClientTimeout(total=4.0)  # seconds; within that of a check


@asynccontextmanager
async def sidecar_questions(endpoint: Endpoint, *, token: str | None) -> AsyncIterator[AskSidecar]:
    """What asks for a path; it raises SidecarUnreachable where nobody answers."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(
        connector=connector_of(endpoint), headers=headers, timeout=TIMEOUT
    ) as session:

        async def ask(path: str) -> SidecarAnswer:
            url = endpoint.base_url.origin().join(type(endpoint.base_url)(path, encoded=True))
            with mapped_errors(endpoint):
                async with session.get(url, allow_redirects=False) as response:
                    text = await response.text()
            return SidecarAnswer(response.status, _body(text), response.headers.get("Date"))

        yield ask


def connector_of(endpoint: Endpoint) -> aiohttp.BaseConnector:
    """The connections to it; raises typer.BadParameter for files of TLS that cannot be used."""
    socket = endpoint.socket
    if socket is not None:
        return aiohttp.UnixConnector(str(socket))
    return aiohttp.TCPConnector(ssl=endpoint.files.context() if endpoint.is_secure else True)


def _body(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
