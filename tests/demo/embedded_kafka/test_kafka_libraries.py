"""Kafka's libraries, fetched by a Maven that is a script."""

from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaUnavailable, kafka_libraries
from tests.demo.embedded_kafka.stub_programs import environ_of, put_program

# It makes one library in the folder that the last argument names, and counts its calls.
FETCH = """for last; do :; done
folder=${last#-DoutputDirectory=}
/bin/mkdir -p "$folder"; echo > "$folder/kafka_2.13-4.1.0.jar"; echo . >> "$HOME/calls" """


def test_libraries_are_fetched_once(tmp_path: Path) -> None:
    """The second call finds what the first one has put into the cache."""
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "mvn", FETCH)
    environ = environ_of(tmp_path)

    folders = [kafka_libraries(environ=environ) for _ in range(2)]

    assert folders[0] == folders[1]
    assert folders[0].is_relative_to(tmp_path / ".cache" / "sidelook")
    assert (tmp_path / "calls").read_text().split() == ["."]


def test_cache_is_where_the_user_wants_it(tmp_path: Path) -> None:
    """XDG_CACHE_HOME comes before the home folder."""
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "mvn", FETCH)
    environ = {**environ_of(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "kept")}

    folder = kafka_libraries(environ=environ)

    assert folder.is_relative_to(tmp_path / "kept" / "sidelook")


def test_maven_is_installed_where_it_is_not(tmp_path: Path) -> None:
    """Where there is no Maven, the system's packages have one; whoever waits is told of both."""
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "fetch", FETCH)
    put_program(tmp_path, "apt-get", '[ "$1" = update ] || /bin/mv "$HOME/fetch" "$HOME/mvn"')
    said: list[str] = []

    folder = kafka_libraries(environ=environ_of(tmp_path), say=said.append)

    assert [path.name for path in folder.iterdir()] == ["kafka_2.13-4.1.0.jar"]
    install = "installs Maven: apt-get install --yes --no-install-recommends maven"
    assert said == [install, f"fetches Kafka and Debezium through Maven (58 MB) into {folder}"]


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({}, "no Java to run Kafka with"),
        ({"java": ""}, "no Maven to fetch Kafka and Debezium with; install it"),
        ({"java": "", "apt-get": "echo not root; exit 1"}, "apt-get: not root"),
        ({"java": "", "mvn": "echo no network >&2; exit 1"}, "no network"),
    ],
    ids=["java", "maven", "rights", "network"],
)
def test_what_is_missing_is_told(tmp_path: Path, programs: dict[str, str], reason: str) -> None:
    """Whoever cannot have Kafka hears why, and nothing half is left in the cache."""
    for name, script in programs.items():
        put_program(tmp_path, name, script)

    with pytest.raises(KafkaUnavailable, match=reason):
        kafka_libraries(environ=environ_of(tmp_path))

    assert not list(tmp_path.rglob("*.jar"))
