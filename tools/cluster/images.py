"""Images of the cluster's containers, built by Podman, as archives."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.maven_libraries import download_cache
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
        (folder / f"{number}.tar").symlink_to(_archive(podman, name))


def _archive(podman: Podman, name: str) -> Path:
    """The archive of an image, which the cache keeps until the image is another one."""
    with download_cache(os.environ) as cache:
        folder = cache / "archives"
        folder.mkdir(exist_ok=True)
        prefix = name.replace("/", "-").replace(":", "-")
        identity = podman.output("image", "inspect", "--format={{.Id}}", name)
        archive = folder / f"{prefix}-{identity}.tar"
        if not archive.exists():
            for former in folder.glob(f"{prefix}-*"):
                former.unlink()
            podman.output("save", f"--output={archive}.unfinished", name)
            archive.with_name(f"{archive.name}.unfinished").rename(archive)
    return archive


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
