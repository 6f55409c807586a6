"""`python -m tools.fleet [--write]`: simulate the cases, and print their tables.

`--write` also writes the page docs/reference/fleet.md. Takes five minutes on two cores.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tools.fleet.cases import (
    AUDITS,
    LOADS,
    STREAMS,
    audit_figures,
    load_figures,
    stream_figures,
)
from tools.fleet.page import PAGE, fleet_page, page_tables


def main(arguments: Sequence[str]) -> None:
    """Run all cases, the largest first."""
    parser = argparse.ArgumentParser(prog="python -m tools.fleet")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args(arguments)
    with ProcessPoolExecutor(2) as processes:
        streams = [processes.submit(stream_figures, case) for case in STREAMS[::-1]]
        loads = [processes.submit(load_figures, case) for case in LOADS]
        audits = [processes.submit(audit_figures, case) for case in AUDITS]
        tables = page_tables(
            list(zip(STREAMS, (each.result() for each in streams[::-1]), strict=True)),
            list(zip(LOADS, (each.result() for each in loads), strict=True)),
            list(zip(AUDITS, (each.result() for each in audits), strict=True)),
        )
    print(tables)
    if options.write:
        PAGE.write_text(fleet_page(tables))


if __name__ == "__main__":
    main(sys.argv[1:])
