"""The command `python -m bench`, which `make bench` runs: one part of it, or all.

Ends with 1 if outputs were wrong or a part broke. A bar that is missed is printed, and by itself
no failure: machines differ. The figures of one run are comparable with each other, and with
nothing else.
"""

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from rich.console import Console

from bench.cache_flood import cache_flood
from bench.cold import cold
from bench.document import Run, found_sections, machine, publication
from bench.fairness import fairness
from bench.growth import growth
from bench.hit_rates import hit_rates
from bench.http_load import http_load
from bench.memory import memory
from bench.printout import Printout
from bench.row_bytes import row_bytes
from bench.section import Section
from bench.speed import speed

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "out" / "bench"
LOG_COLUMNS = 140


class Part(Protocol):
    """Measures one thing, with what it needs below a folder."""

    def __call__(self, folder: Path, /, *, is_quick: bool) -> Section:
        """What was found."""


PARTS: dict[str, Part] = {
    "speed": speed,
    "cold": cold,
    "http": http_load,
    "growth": growth,
    "row-bytes": row_bytes,
    "fairness": fairness,
    "memory": memory,
    "hit-rates": hit_rates,
    "flood": cache_flood,
}


def main() -> int:
    """Run what was asked for; 1 if a part found something wrong, or broke."""
    arguments = _arguments()
    width = None if sys.stdout.isatty() else LOG_COLUMNS  # None: as wide as the terminal
    printout = Printout(Console(highlight=False, width=width))
    chosen = list(PARTS) if arguments.part == "all" else [arguments.part]
    kept = FOLDER / ("quick" if arguments.quick else "full")
    kept.mkdir(parents=True, exist_ok=True)
    measured = [name for name in chosen if _measure(name, kept, printout, is_quick=arguments.quick)]
    sections = found_sections(kept, PARTS)
    run = Run(machine(), datetime.now(UTC).date(), list(PARTS), measured, is_quick=arguments.quick)
    page = publication(sections, run, ROOT)
    new = [section for section in sections if section.name in measured]
    printout.on_end(new, page=str(page.relative_to(ROOT)))
    has_fault = any(section.faults for section in new)
    return int(has_fault or len(measured) < len(chosen))


def _measure(name: str, kept: Path, printout: Printout, *, is_quick: bool) -> bool:
    """Whether the part came to its end; its section is kept."""
    printout.on_part(name)
    begun_s = time.monotonic()
    try:
        section = PARTS[name](FOLDER, is_quick=is_quick)
    except Exception:  # noqa: BLE001 -- a part's border: what the others measure is not lost with it
        printout.on_failure()
        return False
    section.write(kept)
    printout.on_section(section, seconds=time.monotonic() - begun_s)
    return True


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="less of everything, for a first look")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # the parts have ended what they started
        sys.exit("stopped")
