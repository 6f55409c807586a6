"""All drawings of docs/images by file name."""

from pathlib import Path

from tools.pictures import architecture, freshness, hit_and_miss, output_modes
from tools.pictures.palette import PALETTES

IMAGES = Path(__file__).parents[2] / "docs" / "images"
_PICTURES = {
    "architecture": architecture.draw,
    "output-modes": output_modes.draw,
    "hit-and-miss": hit_and_miss.draw,
    "freshness": freshness.draw,
}


def drawings() -> dict[str, str]:
    """{file name: SVG} of each picture on light and dark pages."""
    return {
        f"{name}-{palette.name}.svg": draw(palette)
        for name, draw in _PICTURES.items()
        for palette in PALETTES
    }
