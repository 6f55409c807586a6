"""Screenshots of the status page for docs/images: `python -m tools.status_page_pictures URL`.

`make demo SERVE=1` prints the URL of a sidecar under load.
"""

import argparse
import sys
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Page, ViewportSize

from tools.browser import running_browser

COLOURS = 256
IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDE: ViewportSize = {"width": 1160, "height": 1206}
PHONE: ViewportSize = {"width": 390, "height": 844}
SCHEMES: dict[str, Literal["light", "dark"]] = {"": "light", "-dark": "dark"}


def main() -> int:
    """Wait for chart data, then capture the page in light and dark, with `--phone` also narrow."""
    arguments = _arguments()
    with running_browser() as browser:
        page = browser.new_page(viewport=WIDE)
        page.goto(arguments.url)
        page.wait_for_selector(".card")
        page.wait_for_timeout(1000 * arguments.seconds)
        _take(page, arguments.folder, "status-page", is_whole=False)
        if arguments.phone:
            page.set_viewport_size(PHONE)
            _take(page, arguments.folder, "status-page-phone", is_whole=True)
    return 0


def _take(page: Page, folder: Path, name: str, *, is_whole: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, scheme in SCHEMES.items():
        path = folder / f"{name}{suffix}.png"
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=path, full_page=is_whole)
        _make_small(path)
        sys.stdout.write(f"{path}: {path.stat().st_size:,} bytes\n")


def _make_small(path: Path) -> None:
    """Reduce to 256 colours."""
    with Image.open(path) as picture:
        # The default method drops colours of few pixels, such as those of a legend.
        small = picture.quantize(
            COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
    small.save(path, optimize=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="of the status page")
    parser.add_argument("--folder", type=Path, default=IMAGES, help="default: docs/images")
    parser.add_argument("--seconds", type=int, default=120, help="of figures in the charts")
    parser.add_argument("--phone", action="store_true", help="also the width of a phone")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
