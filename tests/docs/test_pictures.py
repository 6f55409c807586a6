"""The drawings of docs/images: current, well-formed, readable on light and dark pages."""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest
from PIL import Image, ImageFont

from lookup_core.operator.element_queue import ElementQueue
from tools.dashboard.drawing import FILE
from tools.pictures.dashboard import draw_dashboard
from tools.pictures.dashboard_data import SHOWN_ROWS, Curve, PanelData
from tools.pictures.drawings import IMAGES, drawings
from tools.pictures.output_modes import QUEUES, SCENARIO, emissions
from tools.pictures.palette import PALETTES, Palette

NAMESPACE = "{http://www.w3.org/2000/svg}"
READABLE = 4.5  # contrast of small text, in WCAG 2.2 AA
MIN_SIZE = 14  # pixels
FONTS = Path(mpl.get_data_path()) / "fonts" / "ttf"
DRAWINGS = drawings()


def parsed(name: str) -> ET.Element:
    """The root of a drawing."""
    return ET.fromstring(DRAWINGS[name])  # noqa: S314  the project's own file


def extent(text: ET.Element) -> tuple[float, float]:
    """Left and right end of a text in DejaVu Sans, which is wider than most system fonts."""
    name = "DejaVuSans-Bold.ttf" if text.get("font-weight") == "bold" else "DejaVuSans.ttf"
    font = ImageFont.truetype(str(FONTS / name), float(text.attrib["font-size"]))
    width = font.getlength(text.text or "")
    share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]]
    left = float(text.attrib["x"]) - share * width
    return left, left + width


def size_of(path: Path) -> tuple[int, int]:
    """Width and height of a picture in pixels."""
    with Image.open(path) as picture:
        return picture.size


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


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_current(name: str) -> None:
    """`python -m tools.pictures` would change nothing."""
    assert (IMAGES / name).read_text() == DRAWINGS[name]


@pytest.mark.parametrize("name", DRAWINGS)
def test_drawing_is_readable(name: str) -> None:
    """A file has title and description, and its texts are large enough and inside the canvas."""
    root = parsed(name)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    texts = root.findall(f".//{NAMESPACE}text")

    assert root.tag == f"{NAMESPACE}svg"
    assert root.findtext(f"{NAMESPACE}title")
    assert root.findtext(f"{NAMESPACE}desc")
    assert [t.text for t in texts if float(t.attrib["font-size"]) < MIN_SIZE] == []
    outside = [t.text for t in texts if extent(t)[0] < 0 or extent(t)[1] > width]
    assert outside == []
    assert [t.text for t in texts if not 10 < float(t.attrib["y"]) < height] == []


@pytest.mark.parametrize("name", DRAWINGS)
def test_texts_do_not_overlap(name: str) -> None:
    """No text covers another one."""
    texts = parsed(name).findall(f".//{NAMESPACE}text")
    boxes = [(float(text.attrib["y"]), *extent(text), text.text) for text in texts]

    overlapping = [
        (text, other)
        for at, (y, left, right, text) in enumerate(boxes)
        for other_y, other_left, other_right, other in boxes[at + 1 :]
        if abs(y - other_y) < MIN_SIZE - 1 and left < other_right and other_left < right
    ]

    assert overlapping == []


@pytest.mark.parametrize("palette", PALETTES, ids=lambda palette: palette.name)
def test_texts_have_contrast(palette: Palette) -> None:
    """Texts are readable on the page, and on the shapes that they are on."""
    pairs = [(tint.text, tint.fill) for tint in palette.tints]
    under = palette.page, palette.plain.fill, palette.inner.fill
    pairs += [(text, fill) for text in (palette.text, palette.muted) for fill in under]

    assert [pair for pair in pairs if contrast(*pair) < READABLE] == []
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("kind", QUEUES.values())
def test_every_element_is_emitted_once(kind: type[ElementQueue]) -> None:
    """The scenario ends with an empty queue, and no record crosses the watermark."""
    order = [each.element for each in emissions(kind, SCENARIO)]
    mark = next(at for at, each in enumerate(SCENARIO) if not each.key)

    assert sorted(order, key=SCENARIO.index) == list(SCENARIO)
    assert set(order[:mark]) == set(SCENARIO[:mark])


def test_check_names_outdated_files(tmp_path: Path) -> None:
    """`--check` names each file that differs or does not exist, and changes none."""
    names = sorted(DRAWINGS)
    for name in names[1:]:
        (tmp_path / name).write_text(DRAWINGS[name] if name != names[1] else "<svg/>")
    command = [sys.executable, "-m", "tools.pictures", "--folder", str(tmp_path)]

    checked = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)
    written = subprocess.run(command, capture_output=True, text=True, check=False)
    again = subprocess.run([*command, "--check"], capture_output=True, text=True, check=False)

    assert (checked.returncode, written.returncode, again.returncode) == (1, 0, 0)
    assert set(re.findall(r"[\w-]+\.svg", checked.stdout)) == set(names[:2])
    assert (again.stdout, again.stderr) == ("", "")


def test_page_has_the_outputs_of_the_queues() -> None:
    """The table of the page on output modes is what the queues emit up to the watermark."""
    page = (IMAGES.parent / "explanation" / "output-modes.md").read_text()
    rows = re.findall(r'^\| `"(\w+)"`[^|]*\| ([^|]*) \|', page, re.MULTILINE)

    outputs = {
        mode: " ".join(each.element.label for each in emissions(kind, SCENARIO)).partition(" W")[0]
        for mode, kind in QUEUES.items()
    }

    shown = {mode: cell for mode, cell in rows if mode in QUEUES}
    assert shown == {mode: f"{output} W" for mode, output in outputs.items()}


def test_dashboard_is_drawn_in_both_themes(tmp_path: Path) -> None:
    """Rows, numbers and lines are drawn, also without data; the rows are those of the file."""
    titles = [panel["title"] for panel in json.loads(FILE.read_text())["panels"]]
    curves = [Curve("hit", [(0.0, 1.0), (2.0, float("nan")), (8.0, 3.0)])]
    panels = [
        PanelData("Lookups", "row", "", 0, 0, 24, 1, is_stacked=False, curves=[]),
        PanelData("Lookups", "stat", "ops", 0, 1, 4, 4, is_stacked=False, curves=curves),
        PanelData("Empty", "stat", "s", 4, 1, 4, 4, is_stacked=False, curves=[]),
        PanelData("By outcome", "timeseries", "s", 0, 5, 12, 8, is_stacked=True, curves=curves),
        PanelData("Empty", "timeseries", "bytes", 12, 5, 12, 8, is_stacked=False, curves=[]),
    ]

    paths = list(draw_dashboard(panels, tmp_path))

    assert set(SHOWN_ROWS) <= set(titles)
    assert [path.name for path in paths] == ["dashboard.png", "dashboard-dark.png"]
    assert len({size_of(path) for path in paths}) == 1
