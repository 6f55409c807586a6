"""Images of the cluster's containers, built by Podman, as archives."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.cluster.machine import run
from tools.image.podman import ROOT, Podman

PAUSE = "localhost/pause:1"
SIDECAR = "docker.io/library/sidelook:0.1.0"  # as the manifests name it
NEWEST_SPARK, OLDEST_SPARK = "4.3.0", "3.5.0"
_DEBIAN = "localhost/debian-java:bookworm"
_DEPLOY = ROOT / "examples" / "deploy"
_JOBS = Path(__file__).parent / "jobs"


def job_name(spark: str) -> str:
    """The name of the job's image for a version of Spark."""
    return f"registry.example/jobs/enrich:spark-{spark}"


def write_images(folder: Path, pause: Path, sparks: Sequence[str]) -> None:
    """Write archives of all images; raises EngineFailed, OSError and ToolUnavailable.

    `pause` is the program of that image; `sparks` are the versions of the jobs.
    """
    podman = Podman.fetched()
    podman.build_sidecar(name=SIDECAR)
    shutil.copy(pause, folder)
    (folder / "Dockerfile").write_text('FROM scratch\nCOPY pause /\nENTRYPOINT ["/pause"]\n')
    podman.build(PAUSE, folder)
    java = ("python3", "python3-pip", "ca-certificates", "openjdk-17-jre-headless")
    podman.import_debian(_DEBIAN, *java)
    wheel = _built_wheel(folder / "wheel")
    for spark in sparks:
        base = f"localhost/spark:{spark}"
        podman.build(base, _JOBS, f"--build-arg=SPARK={spark}")
        options = (f"--file={_DEPLOY}/kubernetes/Dockerfile", f"--build-arg=SPARK_IMAGE={base}")
        podman.build(job_name(spark), _DEPLOY, *options, wheels=(wheel,))
    for number, name in enumerate((PAUSE, SIDECAR, *map(job_name, sparks))):
        podman.output("save", f"--output={folder / str(number)}.tar", name)


def _built_wheel(folder: Path) -> Path:
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    )
    (wheel,) = folder.iterdir()
    return wheel
