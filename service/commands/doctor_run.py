"""Run of `doctor`: the sidecar to query, its HTTP client, and the printed findings.

Imports all connectors, so that only `doctor` imports it, and only when it runs.
"""

import ipaddress
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import aiohttp
import structlog
import typer
from rich.console import Console
from rich.text import Text

from lookup_core.errors import ConfigurationError
from service.commands.endpoint import (
    DEFAULT,
    UNIX,
    ClientFiles,
    SidecarEndpoint,
    parse_endpoint,
    read_token,
)
from service.commands.exit_code import ExitCode
from service.commands.sidecar_client import SidecarClient
from service.commands.tables import shown
from service.config.loading import load_settings
from service.config.settings import Settings
from service.doctor.backends.database_check import combined_findings
from service.doctor.check_runner import Check, run_groups
from service.doctor.deployment.spark_check import Deployment
from service.doctor.finding import Finding, Severity
from service.doctor.plan import Configured, RunningSidecar, plan, unknown_sidecar
from service.doctor.sidecar.response import SidecarResponse
from service.doctor.sidecar.sidecar_check import SidecarGet

ERRORS_FOUND = 1  # exit code
TIMEOUT = aiohttp.ClientTimeout(total=4.0)  # seconds; less than the timeout of a check
MARKS = {  # {severity: (mark without colours, colour)}
    Severity.OK: ("✓ ok", "green"),
    Severity.WARNING: ("! warning", "yellow"),
    Severity.ERROR: ("✗ error", "red"),
    Severity.SKIPPED: ("- skipped", "dim"),
}
_MARK_WIDTH = max(len(mark) for mark, _ in MARKS.values())


def run_doctor(
    config: Path | None, options: "SidecarOptions", deployment: Deployment, *, as_json: bool
) -> int:
    """Run all checks, print the findings, and return the exit code."""
    configured = _load(config)
    sidecar = options.sidecar(configured)
    checks = plan(configured, sidecar if options.is_queried else None, deployment)
    with quiet_libraries():
        results = run_groups(checks)
    findings = combined_findings(results, deployment.executors)
    print_findings(findings, as_json=as_json)
    if configured.faults:
        return ExitCode.CONFIG
    has_errors = any(each.severity is Severity.ERROR for each in findings)
    return ERRORS_FOUND if has_errors else ExitCode.OK


def _load(file: Path | None) -> Configured:
    try:
        return Configured(file, None if file is None else load_settings(file, os.environ))
    except ConfigurationError as error:
        return Configured(file, faults=error.faults)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Suppress all logs within the block."""
    before, disabled = structlog.get_config(), logging.root.manager.disable
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)  # a level that is not used
    structlog.configure(**{**before, "wrapper_class": quiet})
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        structlog.configure(**before)
        logging.disable(disabled)


@dataclass(frozen=True, slots=True)
class SidecarOptions:
    """Options that name the sidecar; missing ones come from its configuration."""

    endpoint: str | None
    token: str | None
    files: ClientFiles
    is_queried: bool = True

    def sidecar(self, configured: Configured) -> RunningSidecar | Check:
        """Return the sidecar to query; raises typer.BadParameter for unusable options."""
        if self.endpoint is None and configured.faults:
            return unknown_sidecar(str(configured.file))
        settings = configured.settings
        address = parse_endpoint(self.endpoint or own_endpoint(settings), self.files)
        server_name = None if self.endpoint else certified_name(settings, address.host)
        token, origin = self.token, "--token-file"
        if token is None:
            token, origin = configured_token(settings), "auth.token_file"
        return RunningSidecar(
            address.url,
            sidecar_getter(address, token=token, server_name=server_name),
            address.socket,
            token_origin=None if token is None else origin,
        )


def own_endpoint(settings: Settings | None) -> str:
    """Return the configured socket, or else the TCP listener; the default socket without a file."""
    if settings is None:
        return DEFAULT
    listen = settings.listen
    if listen.unix is not None or listen.http is None:
        return f"{UNIX}{listen.unix}"
    http = listen.http
    if http.is_address and ipaddress.ip_address(http.host).is_unspecified:
        http = replace(http, host="::1" if ":" in http.host else "127.0.0.1")
    return f"{'http' if listen.tls is None else 'https'}://{http}"


def certified_name(settings: Settings | None, host: str) -> str | None:
    """Return a name in the own certificate; None if that is for the host, or cannot be read."""
    tls = None if settings is None else settings.listen.tls
    try:
        certificate = None if tls is None else tls.certificate()
    except ValueError:  # replaced since the configuration was loaded
        return None
    if certificate is None or certificate.is_for(host.lower()):
        return None
    names = sorted(certificate.names, key=lambda name: (name.startswith("*."), name))
    return names[0].replace("*", "sidelook", 1)  # a wildcard covers any name


def configured_token(settings: Settings | None) -> str | None:
    """Return the token of the configuration; None without a usable one.

    The secrets check reports an unusable file.
    """
    file = None if settings is None else settings.auth.token_file
    try:
        return None if file is None else read_token(str(file))
    except typer.BadParameter:
        return None


def sidecar_getter(
    address: SidecarEndpoint, *, token: str | None, server_name: str | None = None
) -> SidecarGet:
    """Return a function that requests a path; it raises SidecarUnreachable.

    The certificate must be valid for `server_name`, by default the host of the address. Raises
    typer.BadParameter for unusable TLS files.
    """
    tls = address.tls

    async def get(path: str) -> SidecarResponse:
        async with SidecarClient.opened(address, token=token, tls=tls, limits=TIMEOUT) as client:
            return await client.response("GET", path, server_name=server_name)

    return get


def print_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print all findings and their number; lines are not wrapped, so that they can be copied."""
    counts = Counter(each.severity for each in findings)
    summary = {severity.value: counts[severity] for severity in Severity}
    if as_json:
        typer.echo(json.dumps({"findings": [*map(asdict, findings)], "summary": summary}))
        return
    Console().print(findings_text(findings), soft_wrap=True)
    typer.echo(summary_line(summary))


def findings_text(findings: Sequence[Finding]) -> Text:
    """Return the findings as lines, grouped by check, in the order of the first findings."""
    checks = list(dict.fromkeys(finding.check for finding in findings))
    by_check = sorted(findings, key=lambda finding: checks.index(finding.check))
    return Text("\n").join(line for finding in by_check for line in _lines(finding))


def _lines(finding: Finding) -> Iterator[Text]:
    mark, colour = MARKS[finding.severity]
    subject = shown(f"{finding.place}: ")
    subject.stylize("bold")
    yield Text.assemble((mark.ljust(_MARK_WIDTH), colour), " ", subject, shown(finding.message))
    if finding.remedy:
        yield Text("  → ") + shown(finding.remedy)


def summary_line(summary: dict[str, int]) -> str:
    """Return the numbers of findings: `2 errors, 1 warning, 0 skipped, 9 ok`."""
    errors, warnings = summary["error"], summary["warning"]
    return (
        f"{errors} error{'' if errors == 1 else 's'}, "
        f"{warnings} warning{'' if warnings == 1 else 's'}, "
        f"{summary['skipped']} skipped, {summary['ok']} ok"
    )
