"""Examples of options in docs/reference: each option has one, and gives the rows that it shows."""

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- its usual name
from ruamel.yaml import YAML

from spark_client import Sidecar
from tests.docs.pages.blocks import blocks_of
from tests.end_to_end.sidecars import url_of
from tests.integration.sidecars import postgres_sidecar
from tests.test_layers import ROOT
from tools.processes.postgres_server import Database

PAGE = ROOT / "docs" / "reference" / "lookup-options.md"
TEXT = PAGE.read_text()
EXAMPLES = re.findall(r"^\| `(\w+)` \| `(.+)` \| (.+) \|$", TEXT, re.MULTILINE)
(SAME,) = re.findall(r"\*same\* is the result of `airports\(\)`:\s+(.+?)\.\n", TEXT, re.DOTALL)


def code(language: str) -> str:
    """The first block of this language."""
    return next(block.text for block in blocks_of(PAGE) if block.language == language)


@pytest.fixture(scope="module")
def dims(database: Database, module_folder: Path) -> Iterator[Sidecar]:
    """A sidecar with the dimensions of the page."""
    database.execute(*code("sql").strip().rstrip(";").split(";\n"))
    dimensions = YAML(typ="safe").load(code("yaml"))["dimensions"]
    for each in dimensions.values():
        each["table"] = each.pop("source")["table"]  # of the test's database
    with (sidecar := postgres_sidecar(module_folder, database.dsn(), dimensions)).running():
        yield Sidecar(url_of(sidecar))


@pytest.fixture(scope="module")
def names(spark_session: SparkSession, dims: Sidecar) -> dict[str, Any]:
    """What the Python code of the page defines and uses."""
    known: dict[str, Any] = {"spark": spark_session, "dims": dims, "F": F}
    exec(code("python"), known)  # noqa: S102 -- the page's own code
    return known


def shown(enriched: DataFrame, own: list[str]) -> str:
    """The trips in order, each with its added columns; of a status the outcome."""
    texts = []
    for row in enriched.collect():
        values = row.asDict(recursive=True)
        added = {name: value for name, value in values.items() if name not in own}
        cells = [f"{name}={_cell(value)}" for name, value in added.items()]
        texts.append(" ".join([str(values["trip"]), *cells]))
    return "; ".join(sorted(texts))


def _cell(value: object) -> str:
    if isinstance(value, dict):
        value = value["outcome"]
    return "NULL" if value is None else str(value)


def test_each_option_has_an_example() -> None:
    """The examples stand in the order of the options, all but the name of the dimension."""
    options = [*inspect.signature(Sidecar.lookup_join).parameters][2:]

    assert list(dict.fromkeys(option for option, _, _ in EXAMPLES)) == options
    assert [each for each in EXAMPLES if f"{each[0]}=" not in each[1]] == []


@pytest.mark.full
@pytest.mark.parametrize(("option", "example", "rows"), EXAMPLES)
def test_example_gives_its_rows(
    names: dict[str, Any], option: str, example: str, rows: str
) -> None:
    """The rows are those on the page, with an empty cache and with a warm one."""
    del option
    trips: DataFrame = names["trips"]
    join: Callable[[DataFrame], DataFrame] = eval(example, names)  # noqa: S307 -- as above

    found = [shown(trips.transform(join), trips.columns) for _ in range(2)]

    shown_rows = " ".join(SAME.split()) if rows == "same" else rows
    assert found == [shown_rows, shown_rows]
