"""Runbooks and how-to pages: one form, working commands, queries and links."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.main import get_command_name

from service.commands.application import application
from tests.integration.notifications.trigger_messages import make_triggers
from tests.monitoring.expressions import promtool_accepts, unknown_names
from tests.monitoring.rule_file import Rule, alerts
from tools.k8s.manifests import ROOT
from tools.processes.postgres_server import Database, running_postgres

FOLDER = ROOT / "docs" / "runbooks"
RUNBOOKS = sorted(FOLDER.glob("Sidelook*.md"))
PAGES = sorted([*FOLDER.glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")])
SESSIONS = ("listen", "load")  # `application_name` is `sidelook listen`
SECTIONS = ["## Diagnosis", "## Causes", "## Remedies", "## Harmless cases"]


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a language."""
    fence = rf"^ *```{language}\n(.*?)^ *```$"
    return re.findall(fence, page.read_text(), re.MULTILINE | re.DOTALL)


def one_line(expression: str) -> str:
    """The expression without comments and line breaks."""
    return " ".join(re.sub("#.*", "", expression).split())


def commands() -> set[str]:
    """The commands of the program."""
    registered = [(each.name, each.callback) for each in application.registered_commands]
    return {name or get_command_name(call.__name__) for name, call in registered if call}


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    """A database with the table that the pages mention."""
    with running_postgres() as server:
        database = server.new_database()
        database.execute("CREATE TABLE customers (id int8 PRIMARY KEY, name text)")
        yield database


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_runbook_has_its_form(page: Path) -> None:
    """A runbook has the alert's name, its severity, four sections, and at most 60 lines."""
    lines = page.read_text().splitlines()

    assert lines[0] == f"# {page.stem}"
    assert re.match(r"\*\*(critical|warning)\*\*", lines[2])
    assert [line for line in lines if line.startswith("## ")] == SECTIONS
    assert len(lines) <= 60
    assert blocks(page, "promql")


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: f"{alert.name}-{alert.severity}")
def test_runbook_has_the_expression(alert: Rule) -> None:
    """A runbook shows the expression of its alert, with the threshold."""
    shown = blocks(FOLDER / f"{alert.name}.md", "promql")

    assert one_line(alert.expression) in map(one_line, shown)


@pytest.mark.full
def test_queries_are_promql_of_known_metrics(tmp_path: Path) -> None:
    """Promtool parses all PromQL of the runbooks, and every metric in it exists."""
    queries = [query for page in RUNBOOKS for query in blocks(page, "promql")]

    assert unknown_names(queries) == []
    assert promtool_accepts(queries, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(
    "statement",
    [statement for page in RUNBOOKS for statement in blocks(page, "sql")],
    ids=lambda statement: " ".join(statement.split()[:4]),
)
def test_statements_only_read(statement: str, database: Database) -> None:
    """PostgreSQL executes each SQL statement in a read-only transaction."""
    with psycopg.connect(database.dsn()) as session:
        session.execute("SET TRANSACTION READ ONLY")
        result = session.execute(statement.encode())

        assert result.description is not None


@pytest.mark.full
def test_statement_shows_unusable_triggers() -> None:
    """The statement on triggers reports disabled and restricted ones, and those not ALWAYS."""
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
            *restricted(database, names[2]),
        )

        states = [state for _, _, state in database.query(statement)]

    assert states == ["disabled", "not ALWAYS", "restricted", "enabled"]


def restricted(database: Database, name: str) -> Iterator[str]:
    """The statements that write a trigger of statements again, with a condition."""
    query = "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = %s"
    ((definition,),) = database.query(query, (name,))
    yield f'DROP TRIGGER "{name}" ON customers'
    yield definition.replace("EXECUTE", "WHEN (user = 'app') EXECUTE")
    yield f'ALTER TABLE customers ENABLE ALWAYS TRIGGER "{name}"'


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page: Path) -> None:
    """Each `sidelook …` names a command of the program, or a kind of database session."""
    named = re.findall(
        r"(?:^|`|-- |-m )(?:sidelook|service) ([a-z][a-z-]*)", page.read_text(), re.MULTILINE
    )

    assert set(named) <= {*commands(), *SESSIONS}
