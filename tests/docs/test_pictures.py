"""The drawings of docs/images: current, well-formed, readable on light and dark pages."""

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from PIL import ImageFont

from lookup_core.operator.element_queue import ElementQueue, Mark, OrderedQueue, Slice, SlotId
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from tools.pictures import IMAGES, dark_drawings

NAMESPACE = "{http://www.w3.org/2000/svg}"
READABLE = 4.5  # contrast of small text, in WCAG 2.2 AA
MIN_SIZE = 14  # pixels
PAGES = {"light": "#ffffff", "dark": "#1e2129"}  # {scheme: background of a page}
FONTS = Path(mpl.get_data_path()) / "fonts" / "ttf"
DRAWINGS = sorted(IMAGES.glob("*.svg"))
# Records of `output-modes`: name and key, time of arrival, time of the answer; W is a watermark.
SCENARIO = (
    *(("1a", 0, 8), ("2b", 1, 5), ("3a", 2, 6), ("4b", 3, 7), ("W", 4, 4)),
    *(("5a", 5, 7), ("6b", 6, 12), ("7a", 7, 9), ("8b", 8, 10)),
)
QUEUES: dict[str, type[ElementQueue]] = {
    "ordered": OrderedQueue,
    "key_ordered": KeyOrderedQueue,
    "unordered": UnorderedQueue,
}


def emitted(kind: type[ElementQueue], elements: Sequence[tuple[str, int, int]]) -> list[str]:
    """The names of elements in the order in which a queue emits them."""
    queue = kind(capacity=len(elements))
    slots: dict[SlotId, tuple[str, int]] = {}
    order = []
    for now in range(max(answered for *_, answered in elements) + 1):
        for name, arrived, answered in elements:
            if arrived == now:
                key = np.array([ord(name[-1])], np.uint64)
                slot = queue.try_put(Mark() if name == "W" else Slice(1, float("inf"), key))
                assert slot is not None
                slots[slot] = name, answered
        for slot, (name, answered) in slots.items():
            if answered == now and name != "W":
                queue.complete(slot, np.ones(1, np.bool_))
        while (emission := queue.pop_completed()) is not None:
            order.append(slots[emission.slot][0])
    return order


def texts_of(drawing: Path) -> list[ET.Element]:
    """The texts of a drawing."""
    root = ET.fromstring(drawing.read_text())  # noqa: S314  the project's own file
    return root.findall(f".//{NAMESPACE}text")


def boxes_of(drawing: Path) -> list[ET.Element]:
    """The boxes of a drawing, those behind others first."""
    root = ET.fromstring(drawing.read_text())  # noqa: S314  the project's own file
    return root.findall(f".//{NAMESPACE}rect")


def is_in(box: ET.Element, at: tuple[float, float]) -> bool:
    """Whether a point is in a box."""
    x, y, width, height = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
    return x < at[0] < x + width and y < at[1] < y + height


def extent(text: ET.Element) -> tuple[float, float]:
    """Left and right end of a text in DejaVu Sans, which is wider than most system fonts."""
    name = "DejaVuSans-Bold.ttf" if text.get("font-weight") == "bold" else "DejaVuSans.ttf"
    font = ImageFont.truetype(str(FONTS / name), float(text.attrib["font-size"]))
    width = font.getlength(text.text or "")
    share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]]
    left = float(text.attrib["x"]) - share * width
    return left, left + width


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, as WCAG defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_dark_drawings_are_current() -> None:
    """`python -m tools.pictures` would change nothing."""
    drawings = dark_drawings()

    assert len(DRAWINGS) == 2 * len(drawings)
    assert {path for path, svg in drawings.items() if path.read_text() != svg} == set()


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_drawing_is_readable(drawing: Path) -> None:
    """A file has title and description, and its texts are large enough and inside the canvas."""
    root = ET.fromstring(drawing.read_text())  # noqa: S314  the project's own file
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    texts = texts_of(drawing)

    assert root.findtext(f"{NAMESPACE}title")
    assert root.findtext(f"{NAMESPACE}desc")
    assert [t.text for t in texts if float(t.attrib["font-size"]) < MIN_SIZE] == []
    outside = [t.text for t in texts if extent(t)[0] < 0 or extent(t)[1] > width]
    assert outside == []
    assert [t.text for t in texts if not 10 < float(t.attrib["y"]) < height] == []


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_texts_do_not_overlap(drawing: Path) -> None:
    """No text covers another one."""
    boxes = [(float(text.attrib["y"]), *extent(text), text.text) for text in texts_of(drawing)]

    overlapping = [
        (text, other)
        for at, (y, left, right, text) in enumerate(boxes)
        for other_y, other_left, other_right, other in boxes[at + 1 :]
        if abs(y - other_y) < MIN_SIZE - 1 and left < other_right and other_left < right
    ]

    assert overlapping == []


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda path: path.stem)
def test_texts_have_contrast(drawing: Path) -> None:
    """Each text is readable on the last shape below it, or on the page."""
    page = PAGES[drawing.stem.rpartition("-")[2]]
    faint = []
    for text in texts_of(drawing):
        at = sum(extent(text)) / 2, float(text.attrib["y"]) - 5
        under = [box.attrib["fill"] for box in boxes_of(drawing) if is_in(box, at)]
        if contrast(text.attrib["fill"], (page, *under)[-1]) < READABLE:
            faint.append(text.text)

    assert faint == []
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_output_modes_are_those_of_the_queues() -> None:
    """Drawing and page of the output modes show what the queues emit."""
    outputs = {mode: emitted(kind, SCENARIO) for mode, kind in QUEUES.items()}
    page = (IMAGES.parent / "explanation" / "output-modes.md").read_text()
    shown = dict(re.findall(r'^\| `"(\w+)"`[^|]*\| ([^|]*) \|', page, re.MULTILINE))
    drawn = [text.text for text in texts_of(IMAGES / "output-modes-light.svg")]

    assert [", ".join(order) for order in outputs.values() if ", ".join(order) not in drawn] == []
    expected = {mode: " ".join(order).partition(" W")[0] + " W" for mode, order in outputs.items()}
    assert {mode: shown[mode] for mode in QUEUES} == expected
