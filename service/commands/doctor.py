"""`doctor`: options of the diagnosis; it runs in `doctor_run`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.commands.endpoint import (
    CaFileOption,
    CertFileOption,
    ClientFiles,
    JsonOption,
    KeyFileOption,
    TokenOption,
)


def _file(help_text: str) -> Any:  # noqa: ANN401  # typer's option
    return typer.Option(metavar="FILE", help=help_text)


_Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="unix:///path, http://host:port or https://host:port; by default from the file.",
    ),
]
_Config = Annotated[
    Path | None, _file("The sidecar's YAML file; without it, no backend is checked.")
]
_WithoutSidecar = Annotated[
    bool, typer.Option("--without-sidecar", help="Skip the checks of the running sidecar.")
]
_Executors = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Planned number of executors.")
]
_Kubernetes = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION", help="Its version, such as 1.31; - reads `kubectl version -o json`."
    ),
]
_Spark = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION", help="Its version, such as 4.2; by default from the image's tag."
    ),
]
_Policy = Annotated[Path | None, _file("NetworkPolicy that opens the port for Prometheus.")]


def doctor(  # noqa: PLR0913  # each is an option
    *,
    config: _Config = None,
    endpoint: _Endpoint = None,
    token: TokenOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    without_sidecar: _WithoutSidecar = False,
    executors: _Executors = None,
    kubernetes: _Kubernetes = None,
    pod_template: Annotated[Path | None, _file("Pod template of the executors.")] = None,
    spark_conf: Annotated[Path | None, _file("Properties file of spark-submit.")] = None,
    spark: _Spark = None,
    network_policy: _Policy = None,
    as_json: JsonOption = False,
) -> None:
    """Find faults of a sidecar and its surroundings.

    Each finding has a remedy; nothing is changed.

    Exit code 0: no errors; 1: errors; 78: the configuration cannot be loaded.
    """
    # Imported here: other commands must not wait for the imports of all connectors.
    from service.commands.doctor_run import SidecarOptions, run_doctor  # noqa: PLC0415
    from service.doctor.deployment.spark_check import Deployment  # noqa: PLC0415

    if spark_conf is None and (spark or network_policy):
        raise typer.BadParameter("--spark and --network-policy need --spark-conf FILE")
    version = sys.stdin.read() if kubernetes == "-" else kubernetes
    deployment = Deployment(
        executors, version, pod_template, spark_conf, _spark_version(spark), network_policy
    )
    files = ClientFiles(ca_file, cert_file, key_file)
    sidecar = SidecarOptions(endpoint, token, files, is_queried=not without_sidecar)
    raise typer.Exit(run_doctor(config, sidecar, deployment, as_json=as_json))


def _spark_version(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdigit() and minor.isdigit()):
        raise typer.BadParameter(f"{text!r} is not a Spark version such as 4.2")
    return int(major), int(minor)
