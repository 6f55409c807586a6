"""Generated pages of the reference: they are current, and have everything that they describe."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer import Context

import sidelook
from lookup_core.errors import ErrorCode
from service.commands.exit_code import ExitCode
from service.http.problem import HttpCode
from tests.docs.pages.blocks import ROOT
from tests.monitoring.expressions import named_metrics, promtool_accepts, unknown_names
from tools.reference.__main__ import main
from tools.reference.commands import command_group
from tools.reference.configuration import all_keys
from tools.reference.metrics import ALL_METRICS, query_of, subject_of
from tools.reference.pages import DOCS, outdated

PUBLIC_CALLS = [
    *(sidelook.Sidecar, sidelook.Sidecar.local, sidelook.Sidecar.lookup_join),
    *(sidelook.Sidecar.lookup_joins, sidelook.Sidecar.lookup_udf, sidelook.Sidecar.register),
    sidelook.Sidecar.repartition_for,
]


def headings(page: str) -> set[str]:
    """The headings of a page, without the font of code."""
    text = (DOCS / "reference" / page).read_text()
    return {each.replace("`", "") for each in re.findall(r"^##+ (.*)$", text, re.MULTILINE)}


def test_pages_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tools.reference` would change nothing."""
    assert main(["--check"]) == 0
    assert (outdated(), capsys.readouterr().out) == ([], "")


def test_each_key_is_described() -> None:
    """Each key of the configuration has a section with its meaning, in sentences."""
    keys = list(all_keys())

    assert {key.name for key in keys} - headings("configuration.md") == set()
    assert [key.name for key in keys if not re.fullmatch(r"\S.*\.", key.description)] == []
    assert len(keys) > 70


def test_each_metric_is_described() -> None:
    """Each metric has a subject, a section, and a query of itself and of known metrics."""
    queries = {name: query_of(metric) for name, metric in ALL_METRICS.items()}

    assert all(map(subject_of, ALL_METRICS.values()))
    assert set(ALL_METRICS) - headings("metrics.md") == set()
    assert unknown_names(list(queries.values())) == []
    assert [
        name
        for name, query in queries.items()
        if not any(each.startswith(name) for each in named_metrics(query))
    ] == []


@pytest.mark.full
def test_queries_are_promql(tmp_path: Path) -> None:
    """Promtool parses the query of each metric."""
    assert promtool_accepts([*map(query_of, ALL_METRICS.values())], tmp_path)


def test_each_command_is_described() -> None:
    """Each command has a section with all its options, and the page has every exit code."""
    group, text = command_group(), (DOCS / "reference/commands.md").read_text()
    context = Context(group)

    for name in group.list_commands(context):
        section = text.partition(f"\n## sidelook {name}\n")[2].partition("\n## ")[0]
        command = group.get_command(context, name)
        assert command is not None
        options = [option for each in command.params for option in each.opts if "--" in option]
        assert [option for option in options if f"`{option}" not in section] == []
        assert "```sh" in section
    assert [each for each in ExitCode if f"\n* {each.value}: " not in text] == []


def test_each_error_and_finding_is_described() -> None:
    """The page has each error code, each code of HTTP, and each check of the doctor."""
    text = (DOCS / "reference/errors.md").read_text()

    assert {str(each) for each in ErrorCode} - headings("errors.md") == set()
    assert [each for each in HttpCode if f"\n* `{each}` (" not in text] == []
    described = {name for name in headings("errors.md") if name.startswith("Finding: ")}
    assert {f"Finding: {name}" for name in _checks_of_the_doctor()} == described


def _checks_of_the_doctor() -> Iterator[str]:
    """The checks that the source of the doctor names."""
    for path in (ROOT / "service" / "doctor").rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Name("Subject" | "_check" | "_skipped_check"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    yield name
                case ast.Assign(targets=[ast.Name("CHECK")], value=ast.Constant(value=str(name))):
                    yield name


@pytest.mark.parametrize("call", PUBLIC_CALLS)
def test_each_option_has_a_docstring(call: Callable[..., Any]) -> None:
    """The docstring has the options of the signature, in order, or names the call that has them."""
    options = [name for name in inspect.signature(call).parameters if name != "self"]
    described = _described(call)
    others = {
        name
        for other in (sidelook.Sidecar.lookup_join, sidelook.Sidecar.lookup_udf)
        if f"`{other.__name__}`" in (inspect.getdoc(call) or "").partition("\nArgs:\n")[0]
        for name in _described(other)
    }

    assert described == [name for name in options if name in described]
    assert set(options) - {*described} <= others


def _described(call: Callable[..., Any]) -> list[str]:
    arguments = (inspect.getdoc(call) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    return re.findall(r"^    (\w+): \S", arguments, re.MULTILINE)
