"""The dashboard as Grafana's JSON, by Grafana's own builders; also a program that writes the file.

`python -m tests.monitoring.dashboard.drawing` after a change of panels: a test compares both.
"""

import json
from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
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

from tests.monitoring.dashboard.lookup_rows import GLANCE, LOOKUPS, STORE
from tests.monitoring.dashboard.panel import Alarm, Look, Panel, Query
from tests.monitoring.dashboard.resource_rows import CACHES, FRESHNESS, PROCESS, STREAMS
from tests.monitoring.dashboard.selectors import DIMENSION, NAMESPACE, POD

FILE = Path(__file__).parents[3] / "k8s" / "components" / "monitoring" / "dashboard.json"
ROWS = (GLANCE, LOOKUPS, STORE, FRESHNESS, STREAMS, CACHES, PROCESS)
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT, _FIGURE_HEIGHT = 8, 4
_BUILD_INFO = 'sidelook_build_info{namespace=~"$namespace"}'
_CHOICES = {  # {variable: where Grafana finds what may be chosen}; in the order of their use
    NAMESPACE: "label_values(sidelook_build_info, namespace)",
    DIMENSION: ('label_values(sidelook_dimension_available{namespace=~"$namespace"}, dimension)'),
    POD: f"label_values({_BUILD_INFO}, pod)",
}


def dashboard_json() -> str:
    """All of it, as it stands in the file."""
    return json.dumps(_dashboard().build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _dashboard() -> boards.Dashboard:
    dashboard = (
        boards.Dashboard("Sidelook")
        .uid("sidelook")
        .description("Lookups of all sidecars: how they end, what they cost, what they wait for.")
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
