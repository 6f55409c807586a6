"""Picture `output-modes`: what the three element queues emit, and when, in one scenario.

The queues of `lookup_core` run; the scenario only sets when records arrive and are answered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lookup_core.operator.element_queue import ElementQueue, Mark, OrderedQueue, Slice, SlotId
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from tools.pictures.canvas import BODY, BOLD, SMALL, WIDTH, Box, Canvas, Point
from tools.pictures.palette import Palette, Tint

WATERMARK = "W"


@dataclass(frozen=True, slots=True)
class Element:
    """A record or the watermark, with the times of its arrival and its answer."""

    name: str
    key: str  # of a record; empty for the watermark
    arrived_at: int
    answered_at: int | None = None  # None: the watermark, complete on arrival

    @property
    def label(self) -> str:
        """Number and key."""
        return f"{self.name}{self.key}"


@dataclass(frozen=True, slots=True)
class Emitted:
    """An element that left a queue."""

    element: Element
    at: int


SCENARIO = (
    Element("1", "a", 0, 8),
    Element("2", "b", 1, 5),
    Element("3", "a", 2, 6),
    Element("4", "b", 3, 7),
    Element(WATERMARK, "", 4),
    Element("5", "a", 5, 7),
    Element("6", "b", 6, 12),
    Element("7", "a", 7, 9),
    Element("8", "b", 8, 10),
)
QUEUES: dict[str, type[ElementQueue]] = {
    "ordered": OrderedQueue,
    "key_ordered": KeyOrderedQueue,
    "unordered": UnorderedQueue,
}
_RULES = {
    "ordered": "in the order of the input",
    "key_ordered": "in the order of each key",
    "unordered": "in the order of the answers",
}
_LEFT, _STEP = 39, 38  # of the time axis
_ROW = 26  # height of an element
_CHIP = Box(0, 0, 34, 22)


def emissions(kind: type[ElementQueue], elements: Sequence[Element]) -> list[Emitted]:
    """Run a queue through the scenario; what it emits, in its order."""
    queue = kind(capacity=len(elements))
    slots: dict[SlotId, Element] = {}
    emitted = []
    for now in range(_end_of(elements) + 1):
        for element in elements:
            if element.arrived_at == now:
                slot = queue.try_put(_queued(element))
                assert slot is not None
                slots[slot] = element
        for slot, element in slots.items():
            if element.answered_at == now:
                queue.complete(slot, np.ones(1, np.bool_))
        while (emission := queue.pop_completed()) is not None:
            emitted.append(Emitted(slots[emission.slot], now))
    return emitted


def draw(palette: Palette) -> str:
    """The picture as SVG."""
    canvas = Canvas(palette)
    y = _draw_input(canvas, 20)
    for mode, kind in QUEUES.items():
        y = _draw_mode(canvas, mode, emissions(kind, SCENARIO), y=y)
    canvas.text((WIDTH - 6, y + 4), "time →", font=SMALL, anchor="end", fill=palette.muted)
    return canvas.svg(y + 12, title="Output order of the three modes", description=_description())


def _draw_input(canvas: Canvas, y: int) -> int:
    palette = canvas.palette
    canvas.text((2, y - 2), "Input", font=BOLD, anchor="start")
    about = "records of the keys a and b, W is a watermark"
    canvas.text((52, y - 2), about, font=SMALL, anchor="start", fill=palette.muted)
    y += 10
    _draw_guides(canvas, y, y + _ROW * len(SCENARIO))
    for element in SCENARIO:
        middle = y + _ROW / 2
        tint = _tint(palette, element)
        if element.answered_at is not None:
            end = _x(element.answered_at)
            canvas.line([(_x(element.arrived_at), middle), (end, middle)], colour=tint.stroke)
            canvas.dot((end, middle), 5, tint)
        _draw_chip(canvas, element, (_x(element.arrived_at), middle))
        y += _ROW
    first = SCENARIO[0]
    assert first.answered_at is not None
    at = _x(first.answered_at) + 12, 30 + _ROW / 2 + 5
    canvas.text(at, "answer arrives", font=SMALL, anchor="start", fill=palette.muted)
    return y + 10


def _draw_mode(canvas: Canvas, mode: str, emitted: Sequence[Emitted], *, y: int) -> int:
    """A lane: elements that leave together are below each other, in their order."""
    palette = canvas.palette
    times = sorted({each.at for each in emitted})
    height = max(sum(each.at == at for each in emitted) for at in times) * _ROW
    box = Box(1, y, WIDTH - 2, height + 70)
    canvas.box(box, palette.plain)
    canvas.text((12, y + 22), f'mode="{mode}"', font=BOLD, anchor="start")
    canvas.text((214, y + 22), _RULES[mode], font=BODY, anchor="start", fill=palette.muted)
    top = y + 32
    _draw_guides(canvas, top, top + height)
    for at in times:
        together = [each.element for each in emitted if each.at == at]
        for number, element in enumerate(together):
            _draw_chip(canvas, element, (_x(at), top + number * _ROW + _ROW / 2))
    order = ", ".join(each.element.label for each in emitted)
    canvas.text((12, box.bottom - 14), "output:", font=SMALL, anchor="start", fill=palette.muted)
    canvas.text((72, box.bottom - 14), order, font=BOLD, anchor="start")
    return int(box.bottom) + 14


def _draw_guides(canvas: Canvas, top: float, bottom: float) -> None:
    """Thin lines at the times of the answers."""
    for at in sorted({each.answered_at for each in SCENARIO if each.answered_at is not None}):
        line = [(_x(at), top), (_x(at), bottom)]
        canvas.line(line, colour=canvas.palette.plain.stroke, width=0.7, is_dashed=True)


def _draw_chip(canvas: Canvas, element: Element, middle: Point) -> None:
    tint, (x, y) = _tint(canvas.palette, element), middle
    box = Box(x - _CHIP.width / 2, y - _CHIP.height / 2, _CHIP.width, _CHIP.height)
    # The shape distinguishes the keys, too.
    canvas.box(box, tint, radius={"a": 11, "b": 3, "": 0}[element.key])
    canvas.text((x, y + 5), element.label, font=BOLD, fill=tint.text)


def _tint(palette: Palette, element: Element) -> Tint:
    return {"a": palette.blue, "b": palette.orange, "": palette.violet}[element.key]


def _queued(element: Element) -> Slice | Mark:
    if element.answered_at is None:
        return Mark()
    return Slice(1, float("inf"), np.array([ord(element.key)], np.uint64))


def _end_of(elements: Sequence[Element]) -> int:
    return max(element.answered_at or element.arrived_at for element in elements)


def _x(time: int) -> float:
    return _LEFT + _STEP * time


def _description() -> str:
    parts = [
        f"{mode}: {' '.join(each.element.label for each in emissions(kind, SCENARIO))}"
        for mode, kind in QUEUES.items()
    ]
    return f"Eight records and a watermark leave in this order. {'; '.join(parts)}."
