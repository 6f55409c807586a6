"""The runbooks and the page for operators: of one form, and what they say to run can be run."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.main import get_command_name

from service.commands.application import application
from service.observability import metrics
from service.observability.metrics import Metric
from tests.integration.postgres_server import Database, running_postgres
from tests.integration.trigger_messages import make_triggers
from tests.monitoring.expressions import known_names, named_metrics
from tests.monitoring.prometheus_programs import promtool
from tests.monitoring.rule_file import ROOT

FOLDER = ROOT / "docs" / "runbooks"
OPERATIONS = ROOT / "docs" / "operations.md"
RUNBOOKS = sorted(FOLDER.glob("Sidelook*.md"))
PAGES = [*RUNBOOKS, FOLDER / "README.md", OPERATIONS, ROOT / "docs" / "tls.md"]
SECTIONS = [
    "## See it",
    "## Likely causes, in this order",
    "## What to do",
    "## When it is harmless",
]


def blocks(page: Path, language: str) -> list[str]:
    """What stands in its fences of a language, indented or not."""
    fence = rf"^ *```{language}\n(.*?)^ *```$"
    return re.findall(fence, page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> set[str]:
    """Those that the program has."""
    registered = [(each.name, each.callback) for each in application.registered_commands]
    return {name or get_command_name(call.__name__) for name, call in registered if call}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """What an operator has, with a table of the dimension that the pages speak of."""
    with running_postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE customers (id int8 PRIMARY KEY, name text)")
        yield database


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_runbook_has_its_form(page: Path) -> None:
    """The alert's name, how urgent it is, four parts in their order, and at most 60 lines."""
    lines = page.read_text().splitlines()

    assert lines[0] == f"# {page.stem}"
    assert re.match(r"\*\*(critical|warning)\*\*", lines[2])
    assert [line for line in lines if line.startswith("## ")] == SECTIONS
    assert len(lines) <= 60
    assert blocks(page, "promql")


def test_queries_name_known_metrics() -> None:
    """What a page shows by PromQL is told by the sidecars."""
    queries = [query for page in RUNBOOKS for query in blocks(page, "promql")]

    assert [query for query in queries if not named_metrics(query)] == []
    assert [query for query in queries if named_metrics(query) - known_names()] == []


@pytest.mark.integration
def test_queries_are_understood(tmp_path: Path) -> None:
    """Promtool parses all PromQL of the pages."""
    queries = [query for page in RUNBOOKS for query in blocks(page, "promql")]
    rules = [{"record": f"page:{n}", "expr": query} for n, query in enumerate(queries)]
    file = tmp_path / "pages.rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "pages", "rules": rules}]}))

    checked = promtool("check", "rules", file)

    assert (checked.returncode, checked.stderr) == (0, "")
    assert f"{len(queries)} rules found" in checked.stdout


@pytest.mark.integration
@pytest.mark.parametrize(
    "statement",
    [statement for page in RUNBOOKS for statement in blocks(page, "sql")],
    ids=lambda statement: " ".join(statement.split()[:4]),
)
def test_statements_are_understood(statement: str, database: Database) -> None:
    """PostgreSQL runs each as it stands, and it changes nothing."""
    with psycopg.connect(database.dsn()) as session:
        session.execute("SET TRANSACTION READ ONLY")
        result = session.execute(statement.encode())

        assert result.description is not None


@pytest.mark.integration
def test_statement_tells_which_triggers_are_heard() -> None:
    """As the sidecar sees them: one that is not ALWAYS is as good as none, like a disabled one."""
    page = FOLDER / "SidelookDimensionStale.md"
    (statement,) = [each for each in blocks(page, "sql") if "pg_trigger" in each]
    with running_postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE customers (id int8 PRIMARY KEY)")
        make_triggers(database, "customers", ["id"])
        names = [name for _, name, _ in database.query(statement)]
        database.execute(
            f'ALTER TABLE customers DISABLE TRIGGER "{names[0]}"',
            f'ALTER TABLE customers ENABLE TRIGGER "{names[1]}"',
        )

        states = [state for _, _, state in database.query(statement)]

    assert states == ["disabled", "not ALWAYS", "as it must be", "as it must be"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_there(page: Path) -> None:
    """Each `python -m service …` names a command that the program has."""
    named = re.findall(r"python -m service ([a-z-]+)", page.read_text())

    assert set(named) <= commands()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file of the tree, and to a heading in it if one is named."""
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, heading = target.partition("#")
        file = page.parent / path if path else page

        assert file.exists(), target
        headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE) if heading else []
        slugs = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
        assert not heading or heading in slugs, target


def test_operators_find_every_metric() -> None:
    """The page has each metric in its table, and none that there is not."""
    rows = [line for line in OPERATIONS.read_text().splitlines() if "? | `" in line]
    told = {f"sidelook_{name}" for row in rows for name in re.findall(r"`([a-z_]+)`", row)}

    assert told == {each.name for each in vars(metrics).values() if isinstance(each, Metric)}


def test_page_for_operators_is_short() -> None:
    """What is longer is not read at night."""
    assert len(OPERATIONS.read_text().splitlines()) <= 150
