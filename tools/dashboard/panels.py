"""Dashboard panels as plain values, and PromQL selectors for the dashboard's variables.

`drawing` turns panels into Grafana's JSON.
"""

from dataclasses import dataclass
from enum import Enum

NAMESPACE, DIMENSION, POD = "namespace", "dimension", "pod"
VARIABLES = (NAMESPACE, DIMENSION, POD)
RATE = "[$__rate_interval]"
# `.*` matches an absent label: without Kubernetes no series has namespace and pod.
PROCESS = 'namespace=~"$namespace", pod=~"$pod"'
DIMENSIONS = f'{PROCESS}, dimension=~"$dimension"'
HALF, THIRD, QUARTER, SIXTH = 12, 8, 6, 4  # of Grafana's 24 columns


class Look(Enum):
    """How a panel shows its values."""

    LINES = "lines"
    STACK = "stack"  # parts of a whole
    FIGURE = "figure"  # the last value as a large number


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and the legend of its series."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """The thresholds of a figure's colours."""

    warning: float
    critical: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of the dashboard."""

    title: str
    description: str
    unit: str  # as Grafana names them
    queries: tuple[Query, ...]
    look: Look = Look.LINES
    width: int = THIRD
    alarm: Alarm | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


def of_dimensions(metric: str, more: str = "") -> str:
    """The metric's series of the chosen dimensions; `more` are further matchers."""
    return f"{metric}{{{DIMENSIONS}{more and f', {more}'}}}"


def of_processes(metric: str) -> str:
    """The metric's series of the chosen pods, for metrics without a dimension."""
    return f"{metric}{{{PROCESS}}}"


def rate(metric: str, more: str = "") -> str:
    """The increase of a counter per second."""
    return f"rate({of_dimensions(metric, more)}{RATE})"


def total(expression: str, *labels: str) -> str:
    """The sum over all sidecars, by labels."""
    return f"sum by ({', '.join(labels)}) ({expression})" if labels else f"sum({expression})"


def largest(expression: str, *labels: str) -> str:
    """The maximum of all sidecars, by labels."""
    return f"max by ({', '.join(labels)}) ({expression})" if labels else f"max({expression})"


def quantile(share: float, histogram: str) -> str:
    """A quantile of a histogram, for each dimension."""
    return f"histogram_quantile({share:g}, {total(rate(f'{histogram}_bucket'), DIMENSION, 'le')})"


def mean(histogram: str) -> str:
    """The mean of a histogram, for each dimension."""
    return (
        f"{total(rate(f'{histogram}_sum'), DIMENSION)}"
        f" / {total(rate(f'{histogram}_count'), DIMENSION)}"
    )
