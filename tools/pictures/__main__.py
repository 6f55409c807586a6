"""Command-line interface: writes the pictures of the documentation, or checks them."""

import argparse
import sys
from pathlib import Path

from tools.pictures.drawings import IMAGES, drawings


def main() -> int:
    """Write the SVG files, or the screenshots; with `--check`, 1 if an SVG file is not current."""
    arguments = _arguments()
    if arguments.screenshots:
        # A browser is needed for these only.
        from tools.pictures.screenshots import take_screenshots  # noqa: PLC0415

        for path in take_screenshots(arguments.folder, seconds=arguments.seconds):
            print(f"{path}: {path.stat().st_size:,} bytes")
        return 0
    current = {arguments.folder / name: svg for name, svg in drawings().items()}
    outdated = [
        path for path, svg in current.items() if not path.exists() or path.read_text() != svg
    ]
    for path in outdated:
        print(f"{path}: {'is not current' if arguments.check else 'written'}")
        if not arguments.check:
            path.write_text(current[path])
    return 1 if arguments.check and outdated else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--check", action="store_true", help="write nothing; name outdated files")
    chosen.add_argument(
        "--screenshots",
        action="store_true",
        help="run the demonstration and take status page and dashboard instead, six minutes",
    )
    parser.add_argument("--folder", type=Path, default=IMAGES, help="default: docs/images")
    parser.add_argument(
        "--seconds", type=int, default=120, help="of steady lookups in the screenshots' charts"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
