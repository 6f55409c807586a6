"""Dockerfiles are read as Docker reads them, and the shipped `.dockerignore` keeps secrets out."""

import pytest

from tests.image.dockerfile import ROOT, Dockerfile, DockerIgnore, Instruction

SHIPPED = DockerIgnore.parse((ROOT / ".dockerignore").read_text())


def test_continued_lines_are_joined() -> None:
    """A comment between continued lines does not end the instruction."""
    text = "FROM a AS build\nRUN one \\\n    # why\n    && two\n"

    assert Dockerfile.parse(text).instructions == (
        Instruction("FROM", "a AS build", "build"),
        Instruction("RUN", "one && two", "build"),
    )


def test_last_stage_decides() -> None:
    """Only what stands in the last stage is true of the image."""
    dockerfile = Dockerfile.parse("FROM a AS x\nUSER 1\nFROM b AS y\nUSER 2\nUSER 3\n")

    assert dockerfile.last("USER") == Instruction("USER", "3", "y")


def test_exec_form_is_read_as_json() -> None:
    """Brackets make the exec form, anything else is parted like a shell does."""
    exec_form = Instruction("CMD", '["a b", "c"]', "x")
    shell_form = Instruction("CMD", "'a b' c", "x")

    assert exec_form.arguments() == shell_form.arguments() == ["a b", "c"]


@pytest.mark.parametrize(
    "path",
    [
        "requirements/service.txt",
        "lookup_core/answer.py",
        "service/http/application.py",
        "examples/parquet.yaml",
        "examples/data/airports.parquet",
    ],
)
def test_image_gets_what_it_needs(path: str) -> None:
    """What the Dockerfile copies is sent to the build."""
    assert SHIPPED.lets_through(path)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".env",
        "service/.env",
        "examples/.env.local",
        "examples/tls/server.key",
        "service/server.pem",
        "examples/sidelook.sock",
        "examples/sidelook.sock.lock",
        "service/__pycache__/app.pyc",
        "k8s/secret.example.yaml",
        "tests/conftest.py",
        "requirements/dev.txt",
    ],
)
def test_nothing_else_reaches_the_build(path: str) -> None:
    """Secrets, left-overs and what the service does not need stay out."""
    assert not SHIPPED.lets_through(path)
