"""The dashboard: complete, readable, and with the variables in every query."""

import re

from tests.monitoring.expressions import (
    dashboard,
    dashboard_expressions,
    known_names,
    named_metrics,
    panels,
    unknown_names,
)

VARIABLES = ("namespace", "dimension", "pod")
# `.*` matches an absent label: without Kubernetes no series has namespace and pod.
PROCESS = 'namespace=~"$namespace", pod=~"$pod"'
DIMENSIONS = f'{PROCESS}, dimension=~"$dimension"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NOT_SHOWN = {  # {metric: why}
    "sidelook_dimension_load_rows": "the status page shows a running load",
    "sidelook_dimension_split_failures_total": "as above; explains a stalled feed",
    "sidelook_dimension_splits": "as above",
    "sidelook_listeners_reachable": "0 fails the readiness probe, which Kubernetes shows",
    "sidelook_fenced_keys_total": "explains fetched keys that are not cached; needs no action",
}


def metric_of(name: str) -> str:
    """The histogram of a series, or the series itself."""
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_each_panel_explains_itself() -> None:
    """A panel has a unique title, a sentence, a unit, and the chosen data source."""
    titles = [panel["title"] for panel in panels()]

    assert len(titles) == len(set(titles))
    assert [panel["title"] for panel in panels() if not panel["description"].endswith(".")] == []
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    assert [panel["title"] for panel in panels() if panel["datasource"] != SOURCE] == []


def test_variables_start_at_all() -> None:
    """Data source, namespace, dimension and pod can be chosen; at first all values are."""
    variables = {each["name"]: each for each in dashboard()["templating"]["list"]}
    chosen = [variables[name] for name in VARIABLES]

    assert list(variables) == ["datasource", *VARIABLES]
    assert variables["datasource"]["query"] == "prometheus"
    assert [each["datasource"] for each in chosen] == [SOURCE] * len(VARIABLES)
    assert {(each["multi"], each["allValue"]) for each in chosen} == {(True, ".*")}
    assert {each["current"]["value"] for each in chosen} == {"$__all"}
    assert unknown_names([each["query"] for each in chosen]) == []


def test_queries_use_the_variables() -> None:
    """Every series is selected by namespace and pod, and by dimension if it has one."""
    targets = [target for panel in panels() for target in panel["targets"]]
    unselected = [
        each["expr"]
        for each in targets
        if each["expr"].count(f"{{{DIMENSIONS}") + each["expr"].count(f"{{{PROCESS}}}")
        != sum(each["expr"].count(f"{name}{{") for name in named_metrics(each["expr"]))
    ]

    assert unselected == []
    assert [each["expr"] for each in targets if each["datasource"] != SOURCE] == []


def test_every_metric_is_shown() -> None:
    """Queries name existing metrics only, and each metric has a panel or a reason for none."""
    expressions = dashboard_expressions(rate_window="1m")
    shown = {metric_of(name) for each in expressions for name in named_metrics(each)}
    exposed = {metric_of(name) for name in known_names() if ":" not in name}

    assert unknown_names(expressions) == []
    assert exposed - shown == set(NOT_SHOWN)
