"""The Java libraries of Apache Kafka and Debezium, fetched once into the user's cache.

Maven fetches them, as any project does; nothing of them is kept in the tree.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from demo.download_cache import download_cache

VERSIONS = {"kafka": "4.1.0", "debezium": "3.2.0.Final"}
FETCH_TIMEOUT_S = 600
_MAIN_LIBRARY = f"kafka_2.13-{VERSIONS['kafka']}.jar"
_DEPENDENCIES = (
    ("org.apache.kafka", "kafka_2.13", VERSIONS["kafka"]),
    ("org.apache.kafka", "connect-runtime", VERSIONS["kafka"]),
    ("org.apache.kafka", "connect-json", VERSIONS["kafka"]),
    ("io.debezium", "debezium-connector-postgres", VERSIONS["debezium"]),
)
_PROJECT = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>sidelook</groupId><artifactId>libraries</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>{dependencies}</dependencies>
</project>
"""
_INSTALL_MAVEN = ("apt-get", "install", "--yes", "--no-install-recommends", "maven")


class KafkaUnavailable(Exception):
    """Kafka cannot be had on this machine; the text says why."""


def kafka_libraries(
    *, environ: Mapping[str, str] = os.environ, say: Callable[[str], None] = lambda _: None
) -> Path:
    """The folder of the libraries, 60 MB; fetched at the first call, under a lock.

    What is installed or fetched is told to `say` before, as it takes a while. Raises
    KafkaUnavailable where there is no Java, no Maven or no network.
    """
    if not shutil.which("java", path=environ.get("PATH")):
        raise KafkaUnavailable("no Java to run Kafka with")
    with download_cache(environ) as cache:
        folder = cache / f"kafka-{VERSIONS['kafka']}-{VERSIONS['debezium']}"
        if not (folder / _MAIN_LIBRARY).exists():
            maven = _maven(environ, say)
            say(f"fetches Kafka and Debezium through Maven (58 MB) into {folder}")
            _fetch(folder, maven, environ=environ)
    return folder


def _fetch(folder: Path, maven: str, *, environ: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        project = Path(work)
        (project / "pom.xml").write_text(_PROJECT.format(dependencies=_dependencies()))
        fetched = project / "libraries"
        goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
        command = (maven, "-q", "-B", *goal, f"-DoutputDirectory={fetched}")
        _run(command, project, environ=environ)
        fetched.rename(folder)


def _dependencies() -> str:
    return "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in _DEPENDENCIES
    )


def _maven(environ: Mapping[str, str], say: Callable[[str], None]) -> str:
    found = shutil.which("mvn", path=environ.get("PATH"))
    if found:
        return found
    if not shutil.which("apt-get", path=environ.get("PATH")):
        raise KafkaUnavailable("no Maven to fetch Kafka with; install it")
    say(f"installs Maven: {' '.join(_INSTALL_MAVEN)}")
    _run(("apt-get", "update"), Path("/"), environ=environ)
    _run(_INSTALL_MAVEN, Path("/"), environ=environ)  # says so where it may not
    return "mvn"


def _run(command: tuple[str, ...], folder: Path, *, environ: Mapping[str, str]) -> None:
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=dict(environ),
            check=True,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        said = f"{error.stdout}{error.stderr}".strip()
        raise KafkaUnavailable(f"{command[0]}: {said}") from error
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(f"{command[0]}: nothing for {error.timeout} s") from error
