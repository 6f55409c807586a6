"""What expressions of PromQL speak of, and those of the dashboard as Prometheus understands them.

No parser: promtool and Prometheus say whether an expression is one.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from service.observability import metrics
from service.observability.metrics import Metric
from tests.monitoring.dashboard.drawing import FILE
from tests.monitoring.rule_file import records

_HISTOGRAMS = (
    metrics.LOOKUP_SECONDS,
    metrics.BACKEND_QUERY_SECONDS,
    metrics.BACKEND_BATCH_KEYS,
)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*sidelook_[a-zA-Z0-9_:]*|sidelook_[a-zA-Z0-9_:]*")


def named_metrics(expression: str) -> set[str]:
    """The metrics and records that are named."""
    return set(_NAME.findall(expression))


def known_names() -> set[str]:
    """All that there is: what the service tells, and what rules record."""
    told = {each.name for each in vars(metrics).values() if isinstance(each, Metric)}
    histograms = {each.name for each in _HISTOGRAMS}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return (told - histograms) | parts | {rule.name for rule in records()}


def dashboard() -> dict[str, Any]:
    """The file as it is."""
    board: dict[str, Any] = json.loads(FILE.read_text())
    return board


def panels() -> Iterator[dict[str, Any]]:
    """All panels but the rows' headings."""
    return (panel for panel in dashboard()["panels"] if panel["type"] != "row")


def dashboard_expressions(*, rate_window: str) -> list[str]:
    """All of them, with every variable at `All`, and rates over so long."""
    raw = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [_chosen_all(expression, rate_window) for expression in raw]


def _chosen_all(expression: str, rate_window: str) -> str:
    chosen = re.sub(r"\$(namespace|dimension|pod)\b", ".*", expression)
    return chosen.replace("$__rate_interval", rate_window)
