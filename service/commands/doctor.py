"""`doctor`: find what keeps a sidecar from working, with a remedy for each finding."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lookup_core.errors import ConfigurationError
from service.commands.endpoint import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    KeyFileOption,
    TokenOption,
    own_endpoint,
    parse_endpoint,
    shown_token,
)
from service.commands.exit_code import ExitCode
from service.config.loading import load_settings

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The sidecar's YAML file; without it, no store is looked at."
    ),
]
DoctorEndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="unix:///path, http://host:port or https://host:port; by default as the file has it.",
    ),
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
WithoutSidecarOption = Annotated[
    bool, typer.Option("--without-sidecar", help="Ask none: here is only the configuration.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")]


if TYPE_CHECKING:
    from service.doctor.finding import Report
    from service.doctor.plan import Configured, Deployment, RunningSidecar, SkippedCheck

ERRORS_FOUND = 1  # the exit code; 78 where the configuration cannot be loaded


def doctor(  # noqa: PLR0913  # each is an option
    *,
    config: ConfigOption = None,
    endpoint: DoctorEndpointOption = None,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    without_sidecar: WithoutSidecarOption = False,
    executors: ExecutorsOption = None,
    kubernetes: KubernetesOption = None,
    pod_template: TemplateOption = None,
    spark_conf: ConfOption = None,
    spark: SparkOption = None,
    network_policy: PolicyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look for what keeps a sidecar from working.

    Each finding has a remedy; nothing is changed.

    Exit code 0: nothing, or warnings only; 1: errors; 78: the configuration cannot be loaded.
    """
    # Here, so that no other command waits for the imports of all adapters.
    from service.doctor.plan import Deployment  # noqa: PLC0415

    _demand_conf(spark_conf, spark, network_policy)
    configured = None if config is None else _configured(config)
    asked = _Asked(endpoint, token, ClientFiles(ca_file, cert_file, key_file))
    sidecar = asked.sidecar(configured)
    told = sys.stdin.read() if kubernetes == "-" else kubernetes
    deployment = Deployment(
        executors, told, pod_template, spark_conf, _spark_version(spark), network_policy
    )
    report = _report(configured, None if without_sidecar else sidecar, deployment)
    _print(report, as_json=as_json)
    if configured is not None and configured.faults:
        raise typer.Exit(ExitCode.CONFIG)
    if report.has_errors:
        raise typer.Exit(ERRORS_FOUND)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was given of the sidecar that is to be asked; the rest stands in its configuration."""

    endpoint: str | None
    token: str | None
    files: ClientFiles

    def sidecar(self, configured: "Configured | None") -> "RunningSidecar | SkippedCheck":
        from service.commands.doctor_io import sidecar_questions  # noqa: PLC0415
        from service.doctor.plan import RunningSidecar, unknown_sidecar  # noqa: PLC0415

        if self.endpoint is None and configured is not None and configured.faults:
            return unknown_sidecar(str(configured.file))
        settings = None if configured is None else configured.settings
        own = own_endpoint(settings)
        where = parse_endpoint(self.endpoint or own.text, self.files)
        token = shown_token(self.token, settings)
        ask = sidecar_questions(
            where,
            token=None if token is None else token.text,
            server_name=None if self.endpoint else own.server_name,
        )
        origin = None if token is None else token.origin
        return RunningSidecar(where.text, ask, where.socket, token_origin=origin)


def _report(
    configured: "Configured | None",
    sidecar: "RunningSidecar | SkippedCheck | None",
    deployment: "Deployment",
) -> "Report":
    from service.commands.doctor_io import quiet_libraries  # noqa: PLC0415
    from service.doctor.backends.database_check import judged  # noqa: PLC0415
    from service.doctor.check_runner import run_checks_apart  # noqa: PLC0415
    from service.doctor.finding import Report  # noqa: PLC0415
    from service.doctor.plan import groups, plan  # noqa: PLC0415

    with quiet_libraries():
        seen = run_checks_apart(groups(plan(configured, sidecar, deployment)))
    return Report(judged(seen, deployment.executors))


def _print(report: "Report", *, as_json: bool) -> None:
    from service.commands.doctor_io import print_findings, summary_line  # noqa: PLC0415

    if as_json:
        typer.echo(json.dumps(report.as_json()))
        return
    print_findings(report.findings)
    typer.echo(summary_line(report.summary))


def _configured(file: Path) -> "Configured":
    from service.doctor.plan import Configured  # noqa: PLC0415

    try:
        return Configured(file, load_settings(file, os.environ))
    except ConfigurationError as error:
        return Configured(file, faults=error.faults)


def _demand_conf(spark_conf: Path | None, spark: str | None, policy: Path | None) -> None:
    if spark_conf is None and (spark or policy):
        raise typer.BadParameter("--spark and --network-policy belong to a --spark-conf FILE")


def _spark_version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise typer.BadParameter(f"{text!r} is no version of Spark, such as 4.2")
    return int(major), int(minor)
