"""Input and output of `doctor`: requests to the sidecar, findings as text, silenced libraries.

Imported only when the command runs.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import aiohttp
import structlog
from rich.console import Console
from rich.text import Text

from service.commands.endpoint import Endpoint
from service.commands.sidecar_client import connector_of, mapped_errors
from service.commands.tables import shown
from service.doctor.finding import Finding, Severity
from service.doctor.sidecar.sidecar_check import AskSidecar, SidecarAnswer

MARKS = {  # {severity: (what says it without colours, its colour)}
    Severity.OK: ("✓ ok", "green"),
    Severity.WARNING: ("! warning", "yellow"),
    Severity.ERROR: ("✗ error", "red"),
    Severity.SKIPPED: ("- skipped", "dim"),
}
_MARK_WIDTH = max(len(mark) for mark, _ in MARKS.values())


def print_findings(findings: Sequence[Finding]) -> None:
    """Print them on stdout; lines are as long as they are, and only a terminal folds them."""
    Console().print(findings_text(findings), soft_wrap=True)


def findings_text(findings: Sequence[Finding]) -> Text:
    """Those of one check together, in the order of their first findings."""
    checks = list(dict.fromkeys(finding.check for finding in findings))
    by_check = sorted(findings, key=lambda finding: checks.index(finding.check))
    return Text("\n").join(line for finding in by_check for line in _lines(finding))


def summary_line(summary: dict[str, int]) -> str:
    """How many there are of each kind: `2 errors, 1 warning, 0 skipped, 9 ok`."""
    errors, warnings = summary["error"], summary["warning"]
    return (
        f"{errors} error{'' if errors == 1 else 's'}, "
        f"{warnings} warning{'' if warnings == 1 else 's'}, "
        f"{summary['skipped']} skipped, {summary['ok']} ok"
    )


def _lines(finding: Finding) -> Iterator[Text]:
    mark, colour = MARKS[finding.severity]
    matter = shown(f"{finding.check} {finding.subject}: ")
    matter.stylize("bold")
    yield Text.assemble((mark.ljust(_MARK_WIDTH), colour), " ", matter, shown(finding.message))
    if finding.remedy:
        yield Text("  → ") + shown(finding.remedy)


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


_LIBRARIES = ("aiokafka", "asyncio")
_NOTHING = logging.CRITICAL  # which nobody here uses


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Let nobody log meanwhile; all is as before in the end."""
    before = structlog.get_config()
    levels = {name: logging.getLogger(name).level for name in _LIBRARIES}
    structlog.configure(
        **{**before, "wrapper_class": structlog.make_filtering_bound_logger(_NOTHING)}
    )
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(_NOTHING)
    try:
        yield
    finally:
        structlog.configure(**before)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
