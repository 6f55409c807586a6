"""SVG canvas: boxes, lines, arrows and texts in the colours of one palette.

The text stays text: the reader's own font draws it, so each text needs some room.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import drawsvg

from tools.pictures.palette import Palette, Tint

WIDTH = 560  # of each picture, in pixels; a phone shows it at two thirds
FONTS = "system-ui, sans-serif"
_BACK, _MIDDLE, _FRONT = 0, 1, 2
_LINE_HEIGHT = 1.3
_MIDDLE_OF_TEXT = 0.36  # of its size: from the middle of the letters to the baseline
_HEAD_LENGTH, _HEAD_WIDTH = 9, 7

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Font:
    """Size in pixels and weight of a text."""

    size: int
    is_bold: bool = False


BODY, BOLD, SMALL = Font(15), Font(15, is_bold=True), Font(14)


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of a picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> Point:
        """Its centre."""
        return self.x + self.width / 2, self.y + self.height / 2

    @property
    def right(self) -> float:
        """The x of its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The y of its lower side."""
        return self.y + self.height


class _Description(drawsvg.Title):  # type: ignore[misc]
    TAG_NAME = "desc"


class Canvas:
    """Collects the shapes of one picture."""

    def __init__(self, palette: Palette) -> None:
        self.palette = palette
        self._shapes: list[tuple[int, drawsvg.DrawingElement]] = []

    def box(self, box: Box, tint: Tint, *, is_dashed: bool = False, radius: int = 6) -> None:
        """Draw a box with rounded corners."""
        shape = drawsvg.Rectangle(
            _short(box.x),
            _short(box.y),
            _short(box.width),
            _short(box.height),
            rx=radius,
            fill=tint.fill,
            stroke=tint.stroke,
            stroke_width=1.5,
            **_dashes(is_dashed=is_dashed),
        )
        self._shapes.append((_MIDDLE, shape))

    def labelled_box(
        self, box: Box, lines: Sequence[str], tint: Tint, *, has_title: bool = True
    ) -> None:
        """Draw a box with centred lines of text, the first of them as a title."""
        self.box(box, tint)
        fonts = [BOLD if has_title else SMALL, *[SMALL] * (len(lines) - 1)]
        height = sum(font.size * _LINE_HEIGHT for font in fonts)
        x, middle = box.middle
        y = middle - height / 2
        for line, font in zip(lines, fonts, strict=True):
            y += font.size * _LINE_HEIGHT
            base = y - font.size * (_LINE_HEIGHT / 2 - _MIDDLE_OF_TEXT)
            self.text((x, base), line, font=font, fill=tint.text)

    def text(
        self,
        at: Point,
        text: str,
        *,
        font: Font = BODY,
        anchor: str = "middle",
        fill: str | None = None,
    ) -> None:
        """Draw one line of text; `at` is on its baseline: its start, middle or end."""
        shape = drawsvg.Text(
            text,
            font.size,
            _short(at[0]),
            _short(at[1]),
            text_anchor=anchor,
            fill=fill or self.palette.text,
            **({"font_weight": "bold"} if font.is_bold else {}),
        )
        self._shapes.append((_FRONT, shape))

    def dot(self, at: Point, radius: float, tint: Tint) -> None:
        """Draw a filled circle."""
        shape = drawsvg.Circle(_short(at[0]), _short(at[1]), radius, fill=tint.stroke)
        self._shapes.append((_MIDDLE, shape))

    def line(
        self,
        points: Sequence[Point],
        *,
        colour: str | None = None,
        width: float = 1.5,
        is_dashed: bool = False,
        is_behind: bool = False,
    ) -> None:
        """Draw a line through points."""
        shape = drawsvg.Lines(
            *(_short(value) for point in points for value in point),
            fill="none",
            stroke=colour or self.palette.line,
            stroke_width=width,
            stroke_linejoin="round",
            **_dashes(is_dashed=is_dashed),
        )
        self._shapes.append((_BACK if is_behind else _MIDDLE, shape))

    def arrow(
        self,
        points: Sequence[Point],
        *,
        colour: str | None = None,
        is_dashed: bool = False,
        is_double: bool = False,
    ) -> None:
        """Draw a line through points with a head at its end, or at both ends."""
        ends = [self._head(points[-2], points[-1], colour)]
        if is_double:
            ends.insert(0, self._head(points[1], points[0], colour))
        inner = list(points)
        inner[-1] = ends[-1]
        if is_double:
            inner[0] = ends[0]
        self.line(inner, colour=colour, is_dashed=is_dashed)

    def svg(self, height: int, *, title: str, description: str) -> str:
        """The file; title and description are for screen readers."""
        drawing = drawsvg.Drawing(
            WIDTH, height, font_family=FONTS, role="img", aria_labelledby="title description"
        )
        drawing.append(drawsvg.Title(title, id="title"))
        drawing.append(_Description(description, id="description"))
        for layer in (_BACK, _MIDDLE, _FRONT):
            drawing.extend(shape for place, shape in self._shapes if place == layer)
        svg: str = drawing.as_svg()
        return svg + "\n"

    def _head(self, before: Point, end: Point, colour: str | None) -> Point:
        """Draw an arrowhead; returns the end of its line."""
        length = math.dist(before, end)
        along = (end[0] - before[0]) / length, (end[1] - before[1]) / length
        back = end[0] - along[0] * _HEAD_LENGTH, end[1] - along[1] * _HEAD_LENGTH
        side = -along[1] * _HEAD_WIDTH / 2, along[0] * _HEAD_WIDTH / 2
        corners = [
            end,
            (back[0] + side[0], back[1] + side[1]),
            (back[0] - side[0], back[1] - side[1]),
        ]
        values = [_short(value) for corner in corners for value in corner]
        head = drawsvg.Lines(*values, close=True, fill=colour or self.palette.line)
        self._shapes.append((_MIDDLE, head))
        return back


def _dashes(*, is_dashed: bool) -> dict[str, str]:
    return {"stroke_dasharray": "5 4"} if is_dashed else {}


def _short(value: float) -> float:
    """Round to a tenth; whole numbers without a fraction."""
    rounded = round(value, 1)
    return int(rounded) if rounded == int(rounded) else rounded
