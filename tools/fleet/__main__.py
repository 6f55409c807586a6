"""`python -m tools.fleet [--write]`: simulate the cases, and print or write the page.

The page is docs/reference/fleet.md. Takes five minutes on two cores.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor

from tools.fleet.report import (
    LOADS,
    PAGE,
    STREAMS,
    fleet_page,
    load_cells,
    stream_cells,
)


def main() -> None:
    """Run all cases, the largest first."""
    parser = argparse.ArgumentParser(prog="python -m tools.fleet")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    cases = [
        *((stream_cells, case) for case in STREAMS),
        *((load_cells, case) for case in LOADS),
    ]
    with ProcessPoolExecutor(2) as processes:
        largest = sorted(cases, key=lambda each: -each[1].executors)
        running = {id(case): processes.submit(run, case) for run, case in largest}
        page = fleet_page([(case, running[id(case)].result()) for _, case in cases])
    if options.write:
        PAGE.write_text(page)
    else:
        print(page)


if __name__ == "__main__":
    main()
