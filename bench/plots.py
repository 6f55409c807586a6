"""Plots as PNG files: bar charts and line charts, reproducible byte for byte."""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from bench.section import Plot, Section

# Safe for colour-blind readers: Okabe and Ito, "Color Universal Design", 2008.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GREY = "#555555"
_WIDTH_INCHES = 7.0
_DOTS_PER_INCH = 110
_TITLE_CHARACTERS = 80  # per line
_THICKNESS = 0.8  # of all bars of one name together


def plots(sections: Iterable[Section], folder: Path) -> list[Path]:
    """Write each plot to `<name>.png` and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(plot, folder) for section in sections for plot in section.plots]


def _write(plot: Plot, folder: Path) -> Path:
    path = folder / f"{plot.name}.png"
    has_names = any(isinstance(x, str) for points in plot.series.values() for x, _ in points)
    figure = _bars(plot) if has_names else _lines(plot)
    # The version of the program would change the file although the figures are equal.
    figure.savefig(path, dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return path


def _bars(plot: Plot) -> Figure:
    """Draw horizontal bars, which leave room for long names."""
    names = list(dict.fromkeys(str(x) for points in plot.series.values() for x, _ in points))
    figure, axes = _empty(plot, height_inches=1.3 + 0.2 * len(names) * (1 + len(plot.series)))
    thickness = _THICKNESS / len(plot.series)
    for index, (name, points) in enumerate(plot.series.items()):
        shift = thickness * (index - (len(plot.series) - 1) / 2)
        places = [names.index(str(x)) + shift for x, _ in points]
        widths = [y for _, y in points]
        drawn = axes.barh(places, widths, thickness * 0.9, label=name, color=_COLOURS[index])
        axes.bar_label(drawn, [_short(y) for y in widths], padding=3, fontsize=8, color=_GREY)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.12)
    axes.set_xlabel(plot.y_label)
    axes.set_ylabel(plot.x_label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    _add_legend(axes, plot)
    return figure


def _lines(plot: Plot) -> Figure:
    figure, axes = _empty(plot, height_inches=4.0)
    for index, (name, points) in enumerate(plot.series.items()):
        ordered = sorted((float(x), y) for x, y in points)
        xs, ys = [x for x, _ in ordered], [y for _, y in ordered]
        axes.plot(xs, ys, marker="o", markersize=5, label=name, color=_COLOURS[index])
    if plot.is_log_x:
        axes.set_xscale("log")
    measured = sorted({float(x) for points in plot.series.values() for x, _ in points})
    axes.set_xticks(measured, [_short(x) for x in measured])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)  # last, because it also fixes the upper limit
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(visible=True, axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    _add_legend(axes, plot)
    return figure


def _empty(plot: Plot, *, height_inches: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    # A title of the axes would start to the right of the names.
    title = textwrap.fill(plot.title, _TITLE_CHARACTERS)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, axes


def _add_legend(axes: Axes, plot: Plot) -> None:
    if len(plot.series) > 1:
        axes.legend(frameon=False, fontsize=9)


def _short(value: float) -> str:
    """Format with at most three digits and the suffixes k, M and G."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"
