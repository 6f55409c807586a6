"""The Java libraries of Apache Kafka and Debezium, and whether there is a Java to run them with.

How they are fetched stands in `maven_libraries`.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from demo.maven_libraries import LibrariesUnavailable, Library, LibrarySet, maven_libraries

VERSIONS = {"kafka": "4.1.0", "debezium": "3.2.0.Final"}
_LIBRARIES = LibrarySet(
    folder=f"kafka-{VERSIONS['kafka']}-{VERSIONS['debezium']}",
    title="Kafka and Debezium",
    size_mb=58,
    libraries=(
        Library("org.apache.kafka", "kafka_2.13", VERSIONS["kafka"]),
        Library("org.apache.kafka", "connect-runtime", VERSIONS["kafka"]),
        Library("org.apache.kafka", "connect-json", VERSIONS["kafka"]),
        Library("io.debezium", "debezium-connector-postgres", VERSIONS["debezium"]),
    ),
)


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
    try:
        return maven_libraries(_LIBRARIES, environ=environ, say=say)
    except LibrariesUnavailable as error:
        raise KafkaUnavailable(str(error)) from error
