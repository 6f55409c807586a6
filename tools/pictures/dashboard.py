"""Picture of the dashboard: its panels and their data, drawn by matplotlib in Grafana's layout.

Grafana cannot be installed from a package registry. It draws the same panels in its own style.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tools.pictures.canvas import Box, Point
from tools.pictures.dashboard_data import STEP_S, Curve, PanelData

_DOTS_PER_INCH = 100
_WIDTH = 1160  # pixels
_CELL_HEIGHT, _GAP = 29, 8  # of Grafana's grid
_COLUMNS = 24
_CAPTION_HEIGHT = 34
_CAPTION = (
    "Panels and queries of k8s/components/monitoring/dashboard.json with data of the demonstration,"
    " drawn by tools/pictures. Grafana draws them in its own style."
)
_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "K"))
_BYTE_SCALES = ((2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"))


@dataclass(frozen=True, slots=True)
class _Theme:
    page: str
    panel: str
    edge: str
    text: str
    muted: str
    grid: str
    figure: str  # the colour of a large number
    curves: tuple[str, ...]


_LIGHT = _Theme(
    page="#f4f5f5",
    panel="#ffffff",
    edge="#dcdfe4",
    text="#24292e",
    muted="#5a6270",
    grid="#e4e7eb",
    figure="#1b855e",
    curves=("#37872d", "#1f60c4", "#c4731a", "#8f3bb8", "#c4162a", "#0e8a8a", "#806600", "#5b6472"),
)
_DARK = _Theme(
    page="#111217",
    panel="#181b1f",
    edge="#2c3035",
    text="#d8dae0",
    muted="#9fa4b0",
    grid="#2b2e35",
    figure="#73bf69",
    curves=("#73bf69", "#5794f2", "#ff9830", "#b877d9", "#f2495c", "#56c9c9", "#f2cc0c", "#a5adba"),
)


@dataclass(frozen=True, slots=True)
class _Letters:
    size: float
    weight: str = "normal"
    align: str = "left"
    colour: str | None = None  # None: that of texts


THEMES = {"": _LIGHT, "-dark": _DARK}


def draw_dashboard(panels: Sequence[PanelData], folder: Path) -> Iterator[Path]:
    """Write the picture in light and dark; yields the paths."""
    for suffix, theme in THEMES.items():
        path = folder / f"dashboard{suffix}.png"
        board = _Board(_without_gaps(panels), theme)
        board.figure.savefig(path, dpi=_DOTS_PER_INCH, metadata={"Software": None})
        yield path


def _without_gaps(panels: Sequence[PanelData]) -> list[tuple[int, PanelData]]:
    """Each panel with its y, when rows that are not shown take no place."""
    placed, y, last = [], 0, None
    for panel in panels:
        if last is not None and panel.y != last.y:
            y += last.height
        placed.append((y, panel))
        last = panel
    return placed


class _Board:
    """One figure with all panels."""

    def __init__(self, placed: Sequence[tuple[int, PanelData]], theme: _Theme) -> None:
        self._theme = theme
        cells = max(y + panel.height for y, panel in placed)
        self._height = cells * _CELL_HEIGHT + _GAP + _CAPTION_HEIGHT
        size = _WIDTH / _DOTS_PER_INCH, self._height / _DOTS_PER_INCH
        self.figure = Figure(figsize=size, facecolor=theme.page)
        FigureCanvasAgg(self.figure)
        for y, panel in placed:
            self._draw(panel, y * _CELL_HEIGHT + _GAP)
        self._text((_GAP + 4, self._height - 20), _CAPTION, _Letters(8, colour=theme.muted))

    def _draw(self, panel: PanelData, top: float) -> None:
        cell = (_WIDTH - _GAP) / _COLUMNS
        left, width = _GAP + panel.x * cell, panel.width * cell - _GAP
        box = Box(left, top, width, panel.height * _CELL_HEIGHT - _GAP)
        if panel.kind == "row":
            self._text((left + 4, top + 14), panel.title, _Letters(10.5, "bold"))
            return
        self._frame(box)
        self._text((left + 10, top + 16), panel.title, _Letters(9))
        if panel.kind == "stat":
            self._draw_figure(panel, box)
        else:
            self._draw_curves(panel, box)

    def _draw_figure(self, panel: PanelData, box: Box) -> None:
        text = _formatted(panel.curves[0].points[-1][1], panel.unit) if panel.curves else "No data"
        theme = self._theme
        letters = _Letters(17, "bold", "center", theme.figure)
        self._text((box.middle[0], box.y + 52), text, letters)
        if not panel.curves:
            return
        axes = self._axes(Box(box.x + 1, box.bottom - 30, box.width - 2, 28))
        axes.set_axis_off()
        times, values = _columns(panel.curves[0])
        axes.plot(times, values, color=theme.figure, linewidth=1)
        axes.fill_between(times, values, color=theme.figure, alpha=0.2, linewidth=0)
        axes.set_ylim(0, max([value for value in values if value > 0], default=1) * 1.1)
        axes.margins(x=0)

    def _draw_curves(self, panel: PanelData, box: Box) -> None:
        theme = self._theme
        axes = self._axes(Box(box.x + 62, box.y + 32, box.width - 78, box.height - 88))
        axes.set_facecolor(theme.panel)
        axes.spines[:].set_visible(False)
        axes.grid(color=theme.grid, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(colors=theme.muted, labelsize=7.5, length=0)
        if not panel.curves:
            axes.set_xticks([])
            axes.set_yticks([])
            self._text(box.middle, "No data", _Letters(9, align="center"))
            return
        self._plot(axes, panel)
        axes.margins(x=0)
        has_values = any(value > 0 for curve in panel.curves for value in _columns(curve)[1])
        axes.set_ylim(bottom=0, top=None if has_values else 1)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _formatted(y, panel.unit)))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _clock(x)))
        self._draw_legend(panel, Box(box.x + 12, box.bottom - 27, box.width - 20, 14))

    def _plot(self, axes: Axes, panel: PanelData) -> None:
        base: dict[float, float] = {}
        for curve, colour in zip(panel.curves, self._colours(panel), strict=True):
            times, values = _columns(curve)
            if panel.is_stacked:
                bottoms = [base.get(at, 0.0) for at in times]
                values = [low + value for low, value in zip(bottoms, values, strict=True)]
                base |= dict(zip(times, values, strict=True))
                axes.fill_between(times, bottoms, values, color=colour, alpha=0.3, linewidth=0)
            axes.plot(times, values, color=colour, linewidth=1.1)

    def _draw_legend(self, panel: PanelData, box: Box) -> None:
        """Names from left to right, as far as there is room in two lines."""
        x, y = box.x, box.y
        for curve, colour in zip(panel.curves, self._colours(panel), strict=True):
            needed = _text_width(curve.name) + 26
            if x + needed > box.right:
                x, y = box.x, y + 14
            if y > box.bottom:
                break
            self._text((x, y), "▬", _Letters(7, colour=colour))
            self._text((x + 14, y), curve.name, _Letters(7.5, colour=self._theme.muted))
            x += needed

    def _colours(self, panel: PanelData) -> list[str]:
        colours = self._theme.curves
        return [colours[at % len(colours)] for at in range(len(panel.curves))]

    def _frame(self, box: Box) -> None:
        frame = FancyBboxPatch(
            (box.x, self._height - box.bottom),
            box.width,
            box.height,
            boxstyle="round,pad=0,rounding_size=3",
            facecolor=self._theme.panel,
            edgecolor=self._theme.edge,
            transform=None,
            zorder=-1,
        )
        self.figure.add_artist(frame)

    def _axes(self, box: Box) -> Axes:
        bottom = 1 - box.bottom / self._height
        place = box.x / _WIDTH, bottom, box.width / _WIDTH, box.height / self._height
        return self.figure.add_axes(place)

    def _text(self, at: Point, text: str, letters: _Letters) -> None:
        x, y = at
        self.figure.text(
            x / _WIDTH,
            1 - y / self._height,
            text,
            fontsize=letters.size,
            fontweight=letters.weight,
            color=letters.colour or self._theme.text,
            ha=letters.align,
            va="center",
        )


def _columns(curve: Curve) -> tuple[list[float], list[float]]:
    """Times and values; not a number where the line has a gap."""
    times: list[float] = []
    values: list[float] = []
    for at, value in curve.points:
        if times and at - times[-1] > 1.5 * STEP_S:
            times.append(at - STEP_S)
            values.append(math.nan)
        times.append(at)
        values.append(value if math.isfinite(value) else math.nan)
    return times, values


def _text_width(text: str) -> float:
    return 6.3 * len(text)  # pixels, at the size of the legend


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _formatted(value: float, unit: str) -> str:
    """The value as Grafana writes it in this unit."""
    if not math.isfinite(value):
        return "no value"
    if unit == "percentunit":
        return f"{100 * value:.3g}%"
    if unit == "bytes":
        return _scaled(value, _BYTE_SCALES) + ("" if value >= _BYTE_SCALES[-1][0] else " B")
    if unit == "s":
        return _duration(value)
    return _scaled(value, _SCALES) + (" ops/s" if unit == "ops" else "")


def _duration(seconds: float) -> str:
    for size, name in ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return "0 s" if seconds == 0 else f"{seconds * 1e6:.3g} µs"


def _scaled(value: float, scales: Sequence[tuple[float, str]]) -> str:
    for size, suffix in scales:
        if value >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
