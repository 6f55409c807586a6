"""Kafka's libraries: fetched once by Maven, and nothing half fetched is kept.

Maven, Java and apt-get are scripts here.
"""

import fcntl
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaUnavailable, kafka_libraries
from demo.maven_libraries import (
    LibrariesUnavailable,
    Library,
    LibrarySet,
    download_cache,
    maven_libraries,
)
from tests.demo.embedded_kafka.stub_programs import environ_of, put_program

# It makes a library in the folder that the last argument names, keeps the project, and counts.
FETCH = """for last; do :; done
folder=${last#-DoutputDirectory=}
/bin/mkdir -p "$folder"; echo > "$folder/kafka_2.13-4.1.0.jar"; /bin/cp pom.xml "$folder/project"
echo . >> "$HOME/calls" """
WANTED = LibrarySet("one-1.0", "One", 3, (Library("org.one", "one", "1.0"),))


def test_libraries_are_fetched_once(tmp_path: Path) -> None:
    """The second call finds the cache, which is where the user wants it."""
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
    """The system's packages have Maven; the user is informed about both downloads."""
    put_program(tmp_path, "java", "")
    put_program(tmp_path, "fetch", FETCH)
    put_program(tmp_path, "apt-get", '[ "$1" = update ] || /bin/mv "$HOME/fetch" "$HOME/mvn"')
    printed: list[str] = []

    folder = kafka_libraries(environ=environ_of(tmp_path), say=printed.append)

    assert printed == [
        "installs Maven: apt-get install --yes --no-install-recommends maven",
        f"fetches Kafka and Debezium through Maven (58 MB) into {folder}",
    ]


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
def test_failure_has_a_reason(tmp_path: Path, programs: dict[str, str], reason: str) -> None:
    """The reason is stated, and nothing half fetched stays in the cache."""
    for name, script in programs.items():
        put_program(tmp_path, name, script)

    with pytest.raises(KafkaUnavailable, match=reason):
        kafka_libraries(environ=environ_of(tmp_path))

    assert not list(tmp_path.rglob("*.jar"))


def test_failed_fetch_is_repeated(tmp_path: Path) -> None:
    """The next call fetches again, with a project that names exactly the wanted versions."""
    put_program(tmp_path, "mvn", "echo no such version; exit 1")
    with pytest.raises(LibrariesUnavailable, match="no such version"):
        maven_libraries(WANTED, environ=environ_of(tmp_path))
    put_program(tmp_path, "mvn", FETCH)

    folder = maven_libraries(WANTED, environ=environ_of(tmp_path))

    wanted = "<groupId>org.one</groupId><artifactId>one</artifactId><version>1.0</version>"
    assert folder == tmp_path / ".cache" / "sidelook" / "one-1.0"
    assert f"<dependencies><dependency>{wanted}</dependency></dependencies>" in (
        (folder / "project").read_text()
    )


def test_cache_has_one_writer(tmp_path: Path) -> None:
    """While a process writes to the cache, another one waits."""
    with (
        download_cache({"HOME": str(tmp_path)}) as folder,
        (folder / "fetch.lock").open() as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    with (folder / "fetch.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
