"""The dashboard: the file is what the panels say, and what a person needs to read it."""

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.dashboard.drawing import FILE, dashboard_json
from tests.monitoring.dashboard.selectors import DIMENSIONS, PROCESS, VARIABLES
from tests.monitoring.expressions import (
    dashboard,
    dashboard_expressions,
    known_names,
    named_metrics,
    panels,
)
from tests.monitoring.prometheus_programs import promtool

COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NOT_SHOWN = {  # {metric: why}
    "sidelook_dimension_load_rows": "the status page shows a load under way",
    "sidelook_dimension_split_failures_total": "as above; explains a feed that is not live",
    "sidelook_dimension_splits": "as above",
    "sidelook_fenced_keys_total": "explains fetched keys that are not kept; nobody acts on it",
}
Place = dict[str, int]


def targets() -> list[dict[str, Any]]:
    """All queries of all panels."""
    return [target for panel in panels() for target in panel["targets"]]


def metric_of(name: str) -> str:
    """The histogram that a series is of, or the series itself."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def overlap(one: Place, other: Place) -> bool:
    """Whether two places of the grid share a cell."""
    is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    is_above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not is_beside and not is_above


def test_file_is_what_the_panels_say() -> None:
    """`python -m tests.monitoring.dashboard.drawing` would write just this."""
    assert FILE.read_text() == dashboard_json()


def test_each_panel_explains_itself() -> None:
    """A title of its own, a sentence, a unit, and the data source that is chosen above."""
    titles = [panel["title"] for panel in panels()]

    assert len(titles) == len(set(titles))
    assert [panel["title"] for panel in panels() if not panel["description"].endswith(".")] == []
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    assert [panel["title"] for panel in panels() if panel["datasource"] != SOURCE] == []


def test_each_panel_has_its_number_and_place() -> None:
    """No two share a number or a cell of the grid, and none sticks out of it."""
    everything = dashboard()["panels"]
    places = [panel["gridPos"] for panel in everything]

    assert len({panel["id"] for panel in everything}) == len(everything)
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []
    assert [place for place in places if place["x"] + place["w"] > COLUMNS] == []


def test_places_that_overlap_are_noticed() -> None:
    """The check can fail: one cell is enough."""
    assert overlap({"x": 0, "y": 0, "w": 8, "h": 8}, {"x": 7, "y": 7, "w": 8, "h": 8})
    assert not overlap({"x": 0, "y": 0, "w": 8, "h": 8}, {"x": 8, "y": 0, "w": 8, "h": 8})


def test_choices_are_offered() -> None:
    """Data source, namespace, dimension and pod; nothing is chosen to begin with."""
    variables = {each["name"]: each for each in dashboard()["templating"]["list"]}

    assert list(variables) == ["datasource", *VARIABLES]
    assert variables["datasource"]["query"] == "prometheus"
    for name in VARIABLES:
        assert variables[name]["datasource"] == SOURCE
        assert (variables[name]["multi"], variables[name]["allValue"]) == (True, ".*")
        assert variables[name]["current"]["value"] == "$__all"
        assert named_metrics(variables[name]["query"]) <= known_names()


def test_each_query_heeds_the_choices() -> None:
    """Every series that is asked for is chosen by namespace and pod, and by dimension if any."""
    for target in targets():
        named = named_metrics(target["expr"])
        chosen = target["expr"].count(f"{{{DIMENSIONS}") + target["expr"].count(f"{{{PROCESS}}}")
        assert chosen == sum(target["expr"].count(f"{name}{{") for name in named), target["expr"]
        assert target["datasource"] == SOURCE


def test_each_query_asks_for_known_metrics() -> None:
    """Nothing is shown that no sidecar tells."""
    expressions = dashboard_expressions(rate_window="1m")

    assert [each for each in expressions if not named_metrics(each)] == []
    assert [each for each in expressions if named_metrics(each) - known_names()] == []


def test_each_metric_is_shown() -> None:
    """What is told is looked at somewhere, but for what has a reason not to be."""
    expressions = dashboard_expressions(rate_window="1m")
    shown = {metric_of(name) for each in expressions for name in named_metrics(each)}
    told = {metric_of(name) for name in known_names() if ":" not in name}

    assert told - shown == set(NOT_SHOWN)


@pytest.mark.integration
def test_each_query_is_understood(tmp_path: Path) -> None:
    """Promtool parses every expression, with all variables in their places."""
    expressions = dashboard_expressions(rate_window="1m")
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(expressions)]
    file = tmp_path / "panels.rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))

    checked = promtool("check", "rules", file)

    assert (checked.returncode, checked.stderr) == (0, "")
    assert [each for each in expressions if "$" in each] == []
