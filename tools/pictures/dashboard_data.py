"""Data of the dashboard's panels: its expressions, evaluated by a Prometheus."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.dashboard.drawing import FILE
from tools.dashboard.panels import VARIABLES
from tools.processes.prometheus_process import PrometheusProcess, Series

SHOWN_ROWS = ("At a glance", "Lookups", "Freshness")
STEP_S = 2.0
_WINDOW = "15s"  # of rates: scrapes are a second apart
_LEGEND_FIELD = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True, slots=True)
class Curve:
    """A series of a panel."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PanelData:
    """A panel, as in the file of the dashboard, with its data."""

    title: str
    kind: str  # row, stat, timeseries
    unit: str
    x: int  # place and size in Grafana's grid
    y: int
    width: int
    height: int
    is_stacked: bool
    curves: Sequence[Curve]


@dataclass(frozen=True, slots=True)
class Period:
    """A time range, in seconds since the epoch."""

    start: float
    end: float


def panel_data(
    prometheus: PrometheusProcess, rows: Sequence[str], period: Period
) -> list[PanelData]:
    """The panels of these rows, the rows included; lines of panels without data are left out."""
    panels = [
        _panel(each, [] if each["type"] == "row" else _curves(prometheus, each, period))
        for each in _panels_of(rows)
    ]
    lines = {each.y for each in panels if each.curves or each.kind == "row"}
    return [each for each in panels if each.y in lines]


def _panels_of(rows: Sequence[str]) -> list[dict[str, Any]]:
    chosen, is_in = [], False
    for panel in json.loads(FILE.read_text())["panels"]:
        if panel["type"] == "row":
            is_in = panel["title"] in rows
        if is_in:
            chosen.append(panel)
    return chosen


def _panel(panel: Mapping[str, Any], curves: Sequence[Curve]) -> PanelData:
    place = panel["gridPos"]
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    stacking = defaults.get("custom", {}).get("stacking", {})
    return PanelData(
        title=panel["title"],
        kind=panel["type"],
        unit=defaults.get("unit", ""),
        x=place["x"],
        y=place["y"],
        width=place["w"],
        height=place["h"],
        is_stacked=stacking.get("mode") == "normal",
        curves=curves,
    )


def _curves(prometheus: PrometheusProcess, panel: Mapping[str, Any], period: Period) -> list[Curve]:
    """The series of a panel; those without any other value than 0 are the last."""
    curves = [
        Curve(_legend(target["legendFormat"], series), series.points)
        for target in panel["targets"]
        for series in prometheus.series(
            _chosen_all(target["expr"]), start=period.start, end=period.end, step_s=STEP_S
        )
    ]
    return sorted(curves, key=lambda curve: not any(value > 0 for _, value in curve.points))


def _chosen_all(expression: str) -> str:
    """The expression with each variable at `All`."""
    chosen = re.sub(rf"\$({'|'.join(VARIABLES)})\b", ".*", expression)
    return chosen.replace("$__rate_interval", _WINDOW)


def _legend(template: str, series: Series) -> str:
    return _LEGEND_FIELD.sub(lambda field: series.labels.get(field[1], ""), template)
