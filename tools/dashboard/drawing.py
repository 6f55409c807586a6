"""Dashboard generator: panels to Grafana's JSON, by Grafana's own builders.

`python -m tools.dashboard.drawing` updates the file after a change of panels.
"""

import json
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from tools.dashboard.lookup_rows import BACKEND, GLANCE, LOOKUPS
from tools.dashboard.panels import DIMENSION, NAMESPACE, POD, Alarm, Look, Panel, Query
from tools.dashboard.resource_rows import CACHES, FRESHNESS, PROCESS, STREAMS

FILE = Path(__file__).parents[2] / "k8s" / "components" / "monitoring" / "dashboard.json"
ROWS = (GLANCE, LOOKUPS, BACKEND, FRESHNESS, STREAMS, CACHES, PROCESS)
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT, _FIGURE_HEIGHT = 8, 4
_BUILD_INFO = 'sidelook_build_info{namespace=~"$namespace"}'
_CHOICES = {  # {variable: query for its values}, in the order of the dashboard
    NAMESPACE: "label_values(sidelook_build_info, namespace)",
    DIMENSION: ('label_values(sidelook_dimension_available{namespace=~"$namespace"}, dimension)'),
    POD: f"label_values({_BUILD_INFO}, pod)",
}


def dashboard_json() -> str:
    """The content of the file."""
    return json.dumps(_dashboard().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _dashboard() -> boards.Dashboard:
    dashboard = (
        boards.Dashboard("Sidelook")
        .uid("sidelook")
        .description("Lookups of all sidecars: outcomes, cost and waiting times.")
        .tags(["sidelook"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .editable()
        .variables(
            [boards.DatasourceVariable("datasource").label("Data source").type("prometheus")]
        )
    )
    for name, query in _CHOICES.items():
        dashboard.with_variable(_variable(name, query))
    numbers = count(1)
    for row in ROWS:
        dashboard.with_row(boards.Row(row.title).id(next(numbers)))
        for panel in row.panels:
            dashboard.with_panel(_panel(panel).id(next(numbers)))
    return dashboard


def _variable(name: str, query: str) -> boards.QueryVariable:
    return (
        boards.QueryVariable(name)
        .label(name.capitalize())
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    drawn = _figure(panel) if panel.look is Look.FIGURE else _lines(panel)
    drawn = drawn.title(panel.title).description(panel.description).datasource(_SOURCE)
    for reference, query in zip("ABCDEF", panel.queries, strict=False):
        drawn = drawn.with_target(_target(query).ref_id(reference))
    return drawn.unit(panel.unit).span(panel.width)


def _target(query: Query) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).legend_format(query.legend)
    return target.range().datasource(_SOURCE)


def _figure(panel: Panel) -> stat.Panel:
    drawn = stat.Panel().height(_FIGURE_HEIGHT).graph_mode(BigValueGraphMode.AREA)
    drawn = drawn.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return drawn if panel.alarm is None else drawn.thresholds(_thresholds(panel.alarm))


def _lines(panel: Panel) -> timeseries.Panel:
    drawn = timeseries.Panel().height(_HEIGHT).min(0).line_width(1)
    drawn = drawn.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    legend = common.VizLegendOptions().show_legend(show_legend=True)
    legend = legend.display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    drawn = drawn.legend(legend)
    if panel.look is not Look.STACK:
        return drawn
    return drawn.fill_opacity(30).stacking(common.StackingConfig().mode(StackingMode.NORMAL))


def _thresholds(alarm: Alarm) -> boards.ThresholdsConfig:
    steps = [(None, "green"), (alarm.warning, "orange"), (alarm.critical, "red")]
    return (
        boards.ThresholdsConfig()
        .mode(ThresholdsMode.ABSOLUTE)
        .steps([Threshold(value=value, color=color) for value, color in steps])
    )


if __name__ == "__main__":
    FILE.write_text(dashboard_json())
