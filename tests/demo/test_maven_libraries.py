"""Libraries are fetched by a Maven that is a script, which keeps the project that it was given."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from demo.maven_libraries import LibrariesUnavailable, Library, LibrarySet, maven_libraries
from tests.demo.embedded_kafka.stub_programs import environ_of, put_program

FETCH = """for last; do :; done
folder=${last#-DoutputDirectory=}
/bin/mkdir -p "$folder"; /bin/cp pom.xml "$folder/project" """
WANTED = LibrarySet("one-1.0", "One", 3, (Library("org.one", "one", "1.0"),))


def fetched(environ: Mapping[str, str]) -> str:
    """The project that Maven was given."""
    return (maven_libraries(WANTED, environ=environ) / "project").read_text()


def test_project_names_the_libraries(tmp_path: Path) -> None:
    """Maven gets a project with the wanted libraries as its dependencies."""
    put_program(tmp_path, "mvn", FETCH)

    project = fetched(environ_of(tmp_path))

    wanted = "<groupId>org.one</groupId><artifactId>one</artifactId><version>1.0</version>"
    assert f"<dependencies><dependency>{wanted}</dependency></dependencies>" in project


def test_folder_has_the_given_name(tmp_path: Path) -> None:
    """Another version is another folder beside the first one."""
    put_program(tmp_path, "mvn", FETCH)

    folder = maven_libraries(WANTED, environ=environ_of(tmp_path))

    assert folder == tmp_path / ".cache" / "sidelook" / "one-1.0"


def test_failed_fetch_leaves_nothing(tmp_path: Path) -> None:
    """What Maven says is passed on, and the next call tries again."""
    put_program(tmp_path, "mvn", "echo no such version; exit 1")

    with pytest.raises(LibrariesUnavailable, match="no such version"):
        fetched(environ_of(tmp_path))

    put_program(tmp_path, "mvn", FETCH)
    assert "org.one" in fetched(environ_of(tmp_path))
