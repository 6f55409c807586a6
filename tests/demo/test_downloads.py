"""Kafka's libraries: downloaded once, and partial downloads are not kept.

Maven, Java and apt-get are scripts.
"""

from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaUnavailable, kafka_libraries
from tests.demo.embedded_kafka.stub_programs import environ_of, put_program

# Creates a library in the folder of the last argument, keeps the project, and counts the calls.
FETCH = """for last; do :; done
folder=${last#-DoutputDirectory=}
/bin/mkdir -p "$folder"; echo > "$folder/kafka_2.13-4.1.0.jar"; /bin/cp pom.xml "$folder/project"
echo . >> "$HOME/calls" """


def test_libraries_are_downloaded_once(tmp_path: Path) -> None:
    """The second call uses the cache in the configured folder."""
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "mvn", FETCH)
    environ = environ_of(tmp_path)

    folders = [kafka_libraries(environ=environ) for _ in range(2)]
    other = kafka_libraries(environ={**environ, "XDG_CACHE_HOME": str(tmp_path / "kept")})

    assert folders[0] == folders[1]
    assert folders[0].is_relative_to(tmp_path / ".cache" / "sidelook")
    assert other.is_relative_to(tmp_path / "kept" / "sidelook")
    assert (tmp_path / "calls").read_text().split() == [".", "."]


def test_missing_maven_is_installed(tmp_path: Path) -> None:
    """A missing Maven is installed from the system's packages; both downloads are reported."""
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "fetch", FETCH)
    put_program(tmp_path, "apt-get", '[ "$1" = update ] || /bin/mv "$HOME/fetch" "$HOME/mvn"')
    printed: list[str] = []

    folder = kafka_libraries(environ=environ_of(tmp_path), say=printed.append)

    assert printed == [
        "installs Maven: apt-get install --yes --no-install-recommends maven",
        f"downloads Kafka and Debezium with Maven (58 MB) into {folder}",
    ]


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "Kafka needs Java; install it"),
        ({"java": ""}, "downloading Kafka and Debezium needs Maven; install it"),
        ({"java": "", "apt-get": "echo not root; exit 1"}, "apt-get: not root"),
        ({"java": "", "mvn": "echo no network >&2; exit 1"}, "no network"),
    ],
    ids=["java", "maven", "rights", "network"],
)
def test_failure_has_a_reason(tmp_path: Path, programs: dict[str, str], reason: str) -> None:
    """The error has the reason, and no partial download stays in the cache."""
    for name, script in programs.items():
        put_program(tmp_path, name, script)

    with pytest.raises(KafkaUnavailable, match=reason):
        kafka_libraries(environ=environ_of(tmp_path))

    assert not list(tmp_path.rglob("*.jar"))
