"""Screenshots of the status page of a running sidecar, in light and dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import FloatRect, Page, ViewportSize

from tools.browser import running_browser

SIZE: ViewportSize = {"width": 1160, "height": 1200}
SCHEMES: dict[str, Literal["light", "dark"]] = {"": "light", "-dark": "dark"}
_COLOURS = 256
_MARGIN = 8  # pixels below


def take_status_page(url: str, folder: Path, *, seconds: int) -> Iterator[Path]:
    """Wait for chart data of this time, then capture all up to the first group of channels."""
    with running_browser() as browser:
        page = browser.new_page(viewport=SIZE)
        page.goto(url)
        page.wait_for_selector(".card")
        page.wait_for_timeout(1000 * seconds)
        for suffix, scheme in SCHEMES.items():
            path = folder / f"status-page{suffix}.png"
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=path, full_page=True, clip=_upper_part(page))
            _make_small(path)
            yield path


def _upper_part(page: Page) -> FloatRect:
    place = page.locator("#channels > details").first.bounding_box()
    assert place is not None
    bottom = place["y"] + place["height"] + _MARGIN
    return {"x": 0, "y": 0, "width": SIZE["width"], "height": bottom}


def _make_small(path: Path) -> None:
    """Reduce a picture to 256 colours."""
    with Image.open(path) as picture:
        # The default method drops colours of few pixels, such as those of a legend.
        small = picture.convert("RGB").quantize(
            _COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small.save(path, optimize=True)
