"""The command `python -m bench`, which `make bench` runs: one part of it, or all.

The figures of one run are comparable with each other, and with nothing else.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench.cache_flood import cache_flood
from bench.fairness import fairness
from bench.hit_rates import hit_rates
from bench.memory import memory
from bench.speed import speed

FOLDER = Path(__file__).parent.parent / "out" / "bench"
PARTS: dict[str, Callable[..., int]] = {
    "speed": speed,
    "fairness": fairness,
    "memory": memory,
    "hit-rates": hit_rates,
    "flood": cache_flood,
}


def main() -> int:
    """Run what was asked for; not 0 if a part found something wrong."""
    arguments = _arguments()
    console = Console(highlight=False)
    FOLDER.mkdir(parents=True, exist_ok=True)
    chosen = PARTS if arguments.part == "all" else [arguments.part]
    return max(PARTS[name](FOLDER, console, is_quick=arguments.quick) for name in chosen)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("part", nargs="?", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="less of everything, for a first look")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
