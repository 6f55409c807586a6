"""One panel of the dashboard as plain values: what it asks, and what it says about itself.

Knows nothing of Grafana's JSON; `drawing` makes that of it.
"""

from dataclasses import dataclass
from enum import Enum

HALF, THIRD, QUARTER, SIXTH = 12, 8, 6, 4  # of Grafana's 24 columns


class Look(Enum):
    """How a panel shows its values."""

    LINES = "lines"
    STACK = "stack"  # parts of a whole
    FIGURE = "figure"  # the last value, large


@dataclass(frozen=True, slots=True)
class Query:
    """One expression, and what its series are called."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """From which value on a figure is coloured."""

    warning: float
    critical: float


@dataclass(frozen=True, slots=True)
class Panel:
    """What an operator sees under one title."""

    title: str
    description: str
    unit: str  # as Grafana names them
    queries: tuple[Query, ...]
    look: Look = Look.LINES
    width: int = THIRD
    alarm: Alarm | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels of one topic."""

    title: str
    panels: tuple[Panel, ...]
