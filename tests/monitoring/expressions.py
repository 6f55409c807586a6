"""Metric names in PromQL, and the expressions of the dashboard with its variables replaced."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.observability import metrics
from service.observability.metrics import Metric
from tests.monitoring.rule_file import promtool, records
from tools.k8s.manifests import FOLDER

FILE = FOLDER / "components" / "monitoring" / "dashboard.json"
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*sidelook_[a-zA-Z0-9_:]*|sidelook_[a-zA-Z0-9_:]*")


def named_metrics(expression: str) -> set[str]:
    """The metrics and recording rules in an expression."""
    return set(_NAME.findall(expression))


def known_names() -> set[str]:
    """The metrics of the service and the recording rules."""
    declared = [each for each in vars(metrics).values() if isinstance(each, Metric)]
    exposed = {each.name for each in declared}
    histograms = {each.name for each in declared if each.is_histogram}
    parts = {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}
    return (exposed - histograms) | parts | {rule.name for rule in records()}


def unknown_names(expressions: list[str]) -> list[str]:
    """The expressions that name no metric, or a metric that does not exist."""
    known = known_names()
    return [each for each in expressions if not set() < named_metrics(each) <= known]


def promtool_accepts(expressions: list[str], folder: Path) -> bool:
    """Whether promtool parses every expression; AssertionError with its output if not."""
    rules = [{"record": f"expression:{n}", "expr": each} for n, each in enumerate(expressions)]
    file = folder / "expressions.rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "expressions", "rules": rules}]}))
    checked = promtool("check", "rules", file)
    assert (checked.returncode, checked.stderr) == (0, "")
    return f"SUCCESS: {len(expressions)} rules found" in checked.stdout


def dashboard() -> dict[str, Any]:
    """The content of the file."""
    board: dict[str, Any] = json.loads(FILE.read_text())
    return board


def panels() -> Iterator[dict[str, Any]]:
    """All panels without the titles of rows."""
    return (panel for panel in dashboard()["panels"] if panel["type"] != "row")


def dashboard_expressions(*, rate_window: str) -> list[str]:
    """All expressions, with every variable at `All` and this window of rates."""
    raw = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [_chosen_all(expression, rate_window) for expression in raw]


def _chosen_all(expression: str, rate_window: str) -> str:
    chosen = re.sub(r"\$(namespace|dimension|pod)\b", ".*", expression)
    return chosen.replace("$__rate_interval", rate_window)
