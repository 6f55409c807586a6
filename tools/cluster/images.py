"""Images of the cluster's containers, as archives in the user's cache."""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.maven_libraries import download_cache
from tools.compat.environments import built_wheel
from tools.image.archive import write_archive
from tools.image.build import Context, DebianBase, built_image, packed_image
from tools.image.container import ARCHITECTURE
from tools.image.image import ROOT, Dockerfile, Image
from tools.image.runtime import ContainerRuntime

PAUSE = "localhost/pause:1"
SIDECAR = "docker.io/library/sidelook:0.1.0"  # as the manifests name it
NEWEST_SPARK, OLDEST_SPARK = "4.3.0", "3.5.0"
SPARK_VERSIONS = (NEWEST_SPARK, OLDEST_SPARK)
_DEPLOY = ROOT / "examples" / "deploy"
_JOBS = Path(__file__).parent / "jobs"
# What Spark's official image has, as far as a job uses it.
_JAVA = DebianBase("java", ("python3", "python3-pip", "ca-certificates", "openjdk-17-jre-headless"))
_SPARK = """
FROM debian AS spark
COPY . /opt
RUN python3 -m pip install --no-cache-dir --no-deps --target=/tmp/spark pyspark=={version} \
 && mv /tmp/spark/pyspark /opt/spark && rm -rf /tmp/spark /opt/spark/python/pyspark \
 && ln -s /opt/spark /opt/spark/python/pyspark && mkdir -p /opt/spark/work-dir \
 && useradd --system --uid 185 --gid 0 --home-dir /opt/spark/work-dir spark
"""
_ENVIRON = {
    "SPARK_HOME": "/opt/spark",
    "JAVA_HOME": f"/usr/lib/jvm/java-17-openjdk-{ARCHITECTURE}",
    "PYSPARK_PYTHON": "python3",
    "PATH": "/opt/spark/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}


@dataclass(frozen=True, slots=True)
class Archive:
    """An image and its name in the cluster."""

    name: str
    file: Path


def job_name(spark: str) -> str:
    """The name of the job's image for a version of Spark."""
    return f"registry.example/jobs/enrich:spark-{spark}"


def cluster_images(runtime: ContainerRuntime, pause: Path) -> list[Archive]:
    """All images; raises BuildFailed, InstallationFailed and ToolUnavailable.

    `pause` is the program of that image.
    """
    sidecar = built_image(runtime, Dockerfile.parse((ROOT / "Dockerfile").read_text()))
    images = [_archive(SIDECAR, sidecar.root, sidecar.config()), _pause(pause)]
    wheel = built_wheel()
    for spark in SPARK_VERSIONS:
        config = {
            "User": "185",
            "Env": [f"{name}={text}" for name, text in _ENVIRON.items()],
            "Entrypoint": ["/opt/entrypoint.sh"],
            "WorkingDir": "/opt/spark/work-dir",
        }
        images.append(_archive(job_name(spark), _job(runtime, spark, wheel).root, config))
    return images


def _job(runtime: ContainerRuntime, spark: str, wheel: Path) -> Image:
    """The image of the jobs, built by the Dockerfile of the examples."""
    context = Context(_JAVA.archive(), folder=_JOBS)
    dockerfile = Dockerfile.parse(_SPARK.format(version=spark))
    base = packed_image(built_image(runtime, dockerfile, context, name=f"spark-{spark}"))
    dockerfile = Dockerfile.parse((_DEPLOY / "kubernetes" / "Dockerfile").read_text())
    context = Context(base, folder=_DEPLOY, wheels=(wheel,), environ=_ENVIRON)
    return built_image(runtime, dockerfile, context, name=f"job-{spark}")


def _pause(program: Path) -> Archive:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pause").write_bytes(program.read_bytes())
        (Path(folder) / "pause").chmod(0o755)
        return _archive(PAUSE, Path(folder), {"Entrypoint": ["/pause"]}, key=program.parent.name)


def _archive(name: str, root: Path, config: Mapping[str, object], *, key: str = "") -> Archive:
    """The archive of a root, which the cache keeps as long as the root is the newest."""
    with download_cache(os.environ) as cache:
        folder = cache / "archives"
        folder.mkdir(exist_ok=True)
        prefix = name.replace("/", "-").replace(":", "-")
        file = folder / f"{prefix}-{key or root.name}.tar"
        if not file.exists():
            for former in folder.glob(f"{prefix}-*"):
                former.unlink()
            write_archive(root, file, name=name, config=config)
    return Archive(name, file)
