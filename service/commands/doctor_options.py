"""What `doctor` can be given, beside what every command takes.

Only names and words; what they mean to the examination stands in `doctor`.
"""

from pathlib import Path
from typing import Annotated

import typer

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
