"""Pictures of the documentation: `python -m tools.pictures [--screenshots]`.

The drawings of light pages, `docs/images/*-light.svg`, are edited by hand; those of dark pages have
the same shapes in the colours of `DARK`. Screenshots show the status page of a demonstration, in
which tables change during a stream.
"""

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from PIL import Image
from playwright.sync_api import FloatRect, Page, ViewportSize

from tools.browser import running_browser
from tools.processes.until import until

IMAGES = Path(__file__).parents[1] / "docs" / "images"
DARK = {  # {colour on a light page: colour on a dark page}
    "#1d2330": "#e8ebf1",  # text
    "#4c5566": "#b7becb",  # less important text
    "#667085": "#8d97a8",  # lines
    "#f4f6f9": "#272c37",  # box, its stroke
    "#98a2b3": "#5d6778",
    "#ffffff": "#313846",  # box in a box, its stroke
    "#97a1b2": "#6b7689",
    "#dceafc": "#1f3c60",  # blue box, its stroke, its text
    "#2467b3": "#6aa8f0",
    "#123f73": "#c4dcfb",
    "#fde7d0": "#4f3617",  # orange
    "#b35c00": "#e6a052",
    "#6d3800": "#f9d8b0",
    "#daf2e4": "#1c4331",  # green
    "#1f8050": "#58c08a",
    "#0e4d2e": "#b8ead0",
    "#fcdfe0": "#53282d",  # red
    "#b8323a": "#f0868d",
    "#86141c": "#fac8ca",
    "#ece3fb": "#3b2d5c",  # violet
    "#6f46b5": "#ae91f0",
    "#472682": "#dccffb",
}
_SIZE: ViewportSize = {"width": 1160, "height": 1200}
_SCHEMES: dict[str, Literal["light", "dark"]] = {"": "light", "-dark": "dark"}
_COLOURS = 256
_MARGIN_PIXELS = 8
_START_TIMEOUT_S = 300.0  # until its sidecar is ready; the first run downloads Kafka
_RUN_TIMEOUT_S = 600.0  # from then on, until its streams have ended
_STOP_TIMEOUT_S = 60.0
_ADDRESS = re.compile(r"status page, while this runs: (http://127\.0\.0\.1:\d+/)")
_LAST_LINE = "Ctrl-C stops everything."


def dark(svg: str) -> str:
    """A drawing in the colours of dark pages; raises KeyError for an unknown colour."""
    return re.sub("#[0-9a-f]{6}", lambda colour: DARK[colour[0]], svg)


def dark_drawings() -> dict[Path, str]:
    """{file: SVG} of each drawing on dark pages."""
    return {
        light.with_name(light.name.replace("-light", "-dark")): dark(light.read_text())
        for light in IMAGES.glob("*-light.svg")
    }


def take_status_page(folder: Path, *, seconds: int) -> Iterator[Path]:
    """Write its screenshots in light and dark, after this time of steady lookups.

    Raises ToolUnavailable without Chromium, RuntimeError if the demonstration fails.
    """
    with _demonstration() as url, running_browser() as browser:
        page = browser.new_page(viewport=_SIZE)
        page.goto(url)
        page.wait_for_selector(".card")
        page.wait_for_timeout(1000 * seconds)
        for suffix, scheme in _SCHEMES.items():
            path = folder / f"status-page{suffix}.png"
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=path, full_page=True, clip=_upper_part(page))
            _reduce_colours(path)
            yield path


def _upper_part(page: Page) -> FloatRect:
    # Up to the first group of channels.
    place = page.locator("#channels > details").first.bounding_box()
    assert place is not None
    bottom = place["y"] + place["height"] + _MARGIN_PIXELS
    return {"x": 0, "y": 0, "width": _SIZE["width"], "height": bottom}


def _reduce_colours(path: Path) -> None:
    with Image.open(path) as picture:
        # The default method drops colours of few pixels, such as those of a legend.
        small = picture.convert("RGB").quantize(
            _COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small.save(path, optimize=True)


@contextmanager
def _demonstration() -> Iterator[str]:
    """The address of the status page, after the streams; stops all processes at the end."""
    with TemporaryDirectory(prefix="pictures-") as work:
        log = Path(work, "log")
        command = (sys.executable, "-m", "demo", "--live", "--serve", "--folder", f"{work}/demo")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )

        def is_known(text: str) -> bool:
            return text in log.read_text() or process.poll() is not None

        try:
            until(lambda: is_known("status page"), within_s=_START_TIMEOUT_S)
            until(lambda: is_known(_LAST_LINE), within_s=_RUN_TIMEOUT_S)
            address = _ADDRESS.search(log.read_text())
            if address is None or process.poll() is not None:
                raise RuntimeError(f"the demonstration has ended:\n{log.read_text()}")
            yield address[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(_STOP_TIMEOUT_S)


def main() -> None:
    """Write the drawings of dark pages, or the screenshots."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    parser.add_argument("--screenshots", action="store_true", help="six minutes; needs Chromium")
    parser.add_argument("--folder", type=Path, default=IMAGES, help="of the screenshots")
    parser.add_argument("--seconds", type=int, default=120, help="of lookups before a screenshot")
    arguments = parser.parse_args()
    if arguments.screenshots:
        for path in take_status_page(arguments.folder, seconds=arguments.seconds):
            print(f"{path}: {path.stat().st_size:,} bytes")
        return
    for path, svg in dark_drawings().items():
        path.write_text(svg)


if __name__ == "__main__":
    main()
