"""Sequence diagram: lifelines from left to right, messages and notes from top to bottom."""

from collections.abc import Mapping, Sequence

from tools.pictures.canvas import BOLD, SMALL, WIDTH, Box, Canvas
from tools.pictures.palette import Tint

_HEAD_HEIGHT = 46
_TEXT_HEIGHT = 18
_GAP = 14  # between two steps
_CLEAR = 5  # around a text that crosses a lifeline


class SequenceDiagram:
    """Draws each step below the one before."""

    def __init__(self, canvas: Canvas, lifelines: Mapping[str, float]) -> None:
        """`lifelines` are names and the x of each; a name may have two lines."""
        self._canvas = canvas
        self._lifelines = lifelines
        self._cleared: list[tuple[float, float, float]] = []  # x, from y, to y
        self._top = 1.0
        self.y = self._top + _HEAD_HEIGHT + _GAP

    def section(self, title: str, tint: Tint) -> None:
        """Start a part with a title across the picture."""
        box = Box(1, self.y, WIDTH - 2, 28)
        self._canvas.labelled_box(box, [title], tint)
        self.y = box.bottom + _GAP

    def message(
        self,
        ends: tuple[str, str],
        lines: Sequence[str],
        *,
        tint: Tint | None = None,
        is_dashed: bool = False,
    ) -> None:
        """An arrow from the first lifeline to the second, below its text."""
        source, target = (self._lifelines[name] for name in ends)
        top = self.y
        for line in lines:
            self.y += _TEXT_HEIGHT
            fill = None if tint is None else tint.stroke
            at = (source + target) / 2, self.y - 5
            self._canvas.text(at, line, font=SMALL, fill=self._canvas.palette.text)
        low, high = sorted((source, target))
        crossed = [x for x in self._lifelines.values() if low < x < high]
        self._cleared += [(x, top - 1, self.y + _CLEAR - 3) for x in crossed]
        self.y += 4
        colour = None if tint is None else fill
        self._canvas.arrow([(source, self.y), (target, self.y)], colour=colour, is_dashed=is_dashed)
        self.y += _GAP

    def note(
        self, over: tuple[str, str], lines: Sequence[str], tint: Tint, *, width: float = 0
    ) -> None:
        """A box with text, from one lifeline to another, or around one."""
        first, last = (self._lifelines[name] for name in over)
        middle, across = (first + last) / 2, max(last - first + 40, width)
        left = min(max(middle - across / 2, 1), WIDTH - 1 - across)
        box = Box(left, self.y, across, _TEXT_HEIGHT * len(lines) + 10)
        self._canvas.labelled_box(box, lines, tint, has_title=False)
        self.y = box.bottom + _GAP

    def finish(self) -> int:
        """Draw the lifelines; returns the height of the picture."""
        for name, x in self._lifelines.items():
            lines = name.split("\n")
            widest = max(len(line) for line in lines) * 10.5 + 16
            left = min(max(x - widest / 2, 1), WIDTH - 1 - widest)
            box = Box(left, self._top, widest, _HEAD_HEIGHT)
            tint = self._canvas.palette.plain
            self._canvas.box(box, tint)
            start = self._top + _HEAD_HEIGHT / 2 + 5 - (len(lines) - 1) * 9
            for number, line in enumerate(lines):
                at = box.middle[0], start + number * 18
                self._canvas.text(at, line, font=BOLD, fill=tint.text)
            self._draw_lifeline(x, box.bottom)
        return round(self.y)

    def _draw_lifeline(self, x: float, start: float) -> None:
        for _, top, bottom in sorted(each for each in self._cleared if each[0] == x):
            self._segment(x, start, top)
            start = bottom
        self._segment(x, start, self.y - 4)

    def _segment(self, x: float, start: float, end: float) -> None:
        self._canvas.line(
            [(x, start), (x, end)],
            colour=self._canvas.palette.plain.stroke,
            is_dashed=True,
            is_behind=True,
        )
