"""`doctor`: look for what keeps a sidecar from working, and tell what to do about it.

Changes nothing, and needs no more rights than the sidecar itself. It runs in the sidecar's
container, or on any machine that has the files and reaches the stores.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lookup_core.errors import ConfigurationError
from service.commands.client_files import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    KeyFileOption,
)
from service.commands.endpoint import Endpoint, parse_endpoint
from service.commands.exit_code import ExitCode
from service.commands.own_endpoint import own_endpoint
from service.commands.print_table import print_table
from service.commands.token_file import TokenOption
from service.config.loading import load_settings

if TYPE_CHECKING:
    from service.doctor.plan import Configured, Deployment, RunningSidecar

ERRORS_FOUND = 1  # the exit code; 78 where the configuration cannot be loaded

ConfigOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The sidecar's YAML file; without it, no store.")
]
EndpointOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="unix:///path or http(s)://host:port; as the file has it."),
]
ExecutorsOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="How many executors there are to be.")
]
KubernetesOption = Annotated[
    str | None,
    typer.Option(metavar="VERSION", help="Such as 1.31; - reads `kubectl version -o json`."),
]
TemplateOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The executor pod's template.")
]
ConfOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What spark-submit gets as --properties-file.")
]
SparkOption = Annotated[
    str | None, typer.Option(metavar="VERSION", help="Such as 4.2; as the image's tag has it.")
]
PolicyOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="NetworkPolicy that lets Prometheus in.")
]


def doctor(  # noqa: PLR0913  # each is an option
    *,
    config: ConfigOption = None,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    without_sidecar: Annotated[
        bool, typer.Option("--without-sidecar", help="Ask none: here is only the configuration.")
    ] = False,
    executors: ExecutorsOption = None,
    kubernetes: KubernetesOption = None,
    pod_template: TemplateOption = None,
    spark_conf: ConfOption = None,
    spark: SparkOption = None,
    network_policy: PolicyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look for what keeps a sidecar from working; each finding has a remedy. Changes nothing.

    Exit code 0: nothing, or warnings only; 1: errors; 78: the configuration cannot be loaded.
    """
    # Here, so that no other command waits for the imports of all adapters.
    from service.doctor.plan import Deployment  # noqa: PLC0415

    configured = None if config is None else _configured(config)
    files = ClientFiles(ca_file, cert_file, key_file)
    own = own_endpoint(None if configured is None else configured.settings)
    where = parse_endpoint(endpoint or own.text, files)
    deployment = Deployment(
        executors=executors,
        kubernetes=sys.stdin.read() if kubernetes == "-" else kubernetes,
        pod_template=pod_template,
        spark_conf=spark_conf,
        spark=_spark_version(spark),
        network_policy=network_policy,
    )
    sidecar = (
        None
        if without_sidecar
        else _sidecar(where, token=token, server_name=None if endpoint else own.server_name)
    )
    has_errors = _reported(configured, sidecar, deployment, as_json=as_json)
    if configured is not None and configured.faults:
        raise typer.Exit(ExitCode.CONFIG)
    if has_errors:
        raise typer.Exit(ERRORS_FOUND)


def _reported(
    configured: "Configured | None",
    sidecar: "RunningSidecar | None",
    deployment: "Deployment",
    *,
    as_json: bool,
) -> bool:
    """Examine, and print what was found; returns whether there are errors."""
    from service.commands.findings_table import findings_table, summary_line  # noqa: PLC0415
    from service.commands.quiet_libraries import quiet_libraries  # noqa: PLC0415
    from service.doctor.connection_findings import judged  # noqa: PLC0415
    from service.doctor.examination_apart import examine_apart  # noqa: PLC0415
    from service.doctor.plan import groups, plan  # noqa: PLC0415
    from service.doctor.report import Report  # noqa: PLC0415

    with quiet_libraries():
        seen = examine_apart(groups(plan(configured, sidecar, deployment)))
    report = Report(judged(seen, deployment.executors))
    if as_json:
        typer.echo(json.dumps(report.as_json()))
    else:
        print_table(findings_table(report.findings))
        typer.echo(summary_line(report.summary))
    return report.has_errors


def _sidecar(where: Endpoint, *, token: str | None, server_name: str | None) -> "RunningSidecar":
    from service.commands.sidecar_questions import sidecar_questions  # noqa: PLC0415
    from service.doctor.plan import RunningSidecar  # noqa: PLC0415

    ask = sidecar_questions(where, token=token, server_name=server_name)
    return RunningSidecar(where.text, ask, where.socket)


def _configured(file: Path) -> "Configured":
    from service.doctor.plan import Configured  # noqa: PLC0415

    try:
        return Configured(file, load_settings(file, os.environ))
    except ConfigurationError as error:
        return Configured(file, faults=error.faults)


def _spark_version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise typer.BadParameter(f"{text!r} is no version of Spark, such as 4.2")
    return int(major), int(minor)
