"""Plain questions to a running sidecar, for the doctor: one GET each, whatever the answer is.

For what the other commands ask of a dimension see `sidecar_client`.
"""

import json

import aiohttp

from service.commands.endpoint import Endpoint
from service.commands.sidecar_client import connector_of, mapped_errors
from service.doctor.sidecar_check import AskSidecar, SidecarAnswer

TIMEOUT = aiohttp.ClientTimeout(total=4.0)  # seconds; within that of a check


def sidecar_questions(
    endpoint: Endpoint, *, token: str | None, server_name: str | None = None
) -> AskSidecar:
    """What asks for a path; it raises SidecarUnreachable where nobody answers.

    The certificate must be for `server_name`; without it, for the host of the endpoint. Raises
    typer.BadParameter for files of TLS that cannot be used.
    """
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    tls = endpoint.tls()

    async def ask(path: str) -> SidecarAnswer:
        url = endpoint.base_url.origin().join(type(endpoint.base_url)(path, encoded=True))
        connector = connector_of(endpoint, tls)
        with mapped_errors(endpoint):
            async with (
                aiohttp.ClientSession(
                    connector=connector, headers=headers, timeout=TIMEOUT
                ) as session,
                session.get(url, allow_redirects=False, server_hostname=server_name) as response,
            ):
                text = await response.text()
        return SidecarAnswer(response.status, _body(text), response.headers.get("Date"))

    return ask


def _body(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
