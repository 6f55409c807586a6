"""`python -m tests.compat [--write] [NAME…]`: run the checks for all pairs, or for those named.

Prints the matrix; `--write` also writes docs/reference/compatibility.md. Exits with 1 if a check
failed.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence

from tests.compat.environments import (
    Environment,
    InstallationFailed,
    InterpreterMissing,
    built_wheel,
)
from tests.compat.page import PAGE, MatrixRow, matrix, page_text
from tests.compat.pairs import PAIRS, Pair
from tests.compat.run import compat_sidecar, run_checks


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat")
    parser.add_argument("names", nargs="*", choices=[pair.name for pair in PAIRS], default=())
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} from a run of all")
    options = parser.parse_args()
    if options.write and options.names:
        parser.error("--write needs a run of all pairs; leave the names out")
    rows = list(_rows([pair for pair in PAIRS if not options.names or pair.name in options.names]))
    print(matrix(rows))
    if options.write:
        PAGE.write_text(page_text(rows))
    return int(any(row.result is not None and row.result.failures for row in rows))


def _rows(pairs: Sequence[Pair]) -> Iterator[MatrixRow]:
    wheel = built_wheel()
    with compat_sidecar() as sidecar:
        for pair in pairs:
            environment = Environment(pair, wheel)
            try:
                environment.make()
            except InterpreterMissing as error:
                print(f"NOT RUN: {pair.name}: {error}", file=sys.stderr)
                yield MatrixRow(pair, None)
                continue
            result = run_checks(environment, sidecar)
            print(f"{pair.name}: {len(result.failures)} checks failed", file=sys.stderr)
            for check, reason in result.failures.items():
                print(f"    {check}: {reason}", file=sys.stderr)
            yield MatrixRow(pair, result)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InstallationFailed as error:
        sys.exit(str(error))
