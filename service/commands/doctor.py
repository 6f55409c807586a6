"""`doctor`: options of the diagnosis; it runs in `doctor_run`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from service.commands.endpoint import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    KeyFileOption,
    TokenOption,
)
from service.commands.exit_code import ExitCode

ERRORS_FOUND = 1  # exit code


def doctor(  # noqa: PLR0913  # each is an option
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The sidecar's YAML file; without it, no backend is checked."
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="unix:///path, http://host:port or https://host:port; by default from the file.",
        ),
    ] = None,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    without_sidecar: Annotated[
        bool, typer.Option("--without-sidecar", help="Query no sidecar.")
    ] = False,
    executors: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Planned number of executors.")
    ] = None,
    kubernetes: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Such as 1.31; - reads `kubectl version -o json`."),
    ] = None,
    pod_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Pod template of the executors.")
    ] = None,
    spark_conf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="--properties-file of spark-submit.")
    ] = None,
    spark: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Such as 4.2; by default from the image's tag."),
    ] = None,
    network_policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="NetworkPolicy that opens the port for Prometheus."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Find faults of a sidecar and its surroundings.

    Each finding has a remedy; nothing is changed.

    Exit code 0: no errors; 1: errors; 78: the configuration cannot be loaded.
    """
    # Imported here: other commands must not wait for the imports of all connectors.
    from service.commands.doctor_run import (  # noqa: PLC0415
        SidecarOptions,
        load_configured,
        print_report,
        run_doctor,
    )
    from service.doctor.plan import Deployment  # noqa: PLC0415

    if spark_conf is None and (spark or network_policy):
        raise typer.BadParameter("--spark and --network-policy need --spark-conf FILE")
    version = sys.stdin.read() if kubernetes == "-" else kubernetes
    deployment = Deployment(
        executors, version, pod_template, spark_conf, _spark_version(spark), network_policy
    )
    configured = None if config is None else load_configured(config)
    options = SidecarOptions(endpoint, token, ClientFiles(ca_file, cert_file, key_file))
    sidecar = options.sidecar(configured)
    report = run_doctor(configured, None if without_sidecar else sidecar, deployment)
    print_report(report, as_json=as_json)
    if configured is not None and configured.faults:
        raise typer.Exit(ExitCode.CONFIG)
    if report.has_errors:
        raise typer.Exit(ERRORS_FOUND)


def _spark_version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise typer.BadParameter(f"{text!r} is not a Spark version such as 4.2")
    return int(major), int(minor)
