"""Mutation testing with a fixed sample: runs the tests against each mutant in a copy of the tree.

    python -m tools.mutation_sample find                         print mutants without a known place
    python -m tools.mutation_sample run --results out/now.json --before out/then.json

The sample was drawn by lines, with the nearest operators of cosmic-ray. A run can be interrupted
and continued. It takes hours in one process with low priority, and starts
with a coverage run of all tests. `mutation_moves.toml` locates moved mutants that are not found:

    [renamed]
    Landing = "QueryResult"                              # words, also in lines; or dotted names
    [rewritten.m046]
    file = "lookup_core/dimension/query_result.py"
    qualname = "QueryResult.answers"                     # only if the line is not unique there
    line = "if ambiguous.size > 0:"                      # without its trailing comment
    mutated = "if ambiguous.size >= 0:"
    [removed]
    m012 = "the store that needed it is gone"
"""

import argparse
import hashlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.covering_tests import CoveringTests, Record, read_record
from tools.forked_tests import Run, run_tests, warm_up
from tools.mutants import Moves, Mutant, Tree

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "mutants.json"
REST_S = 120.0  # for related tests that do not execute the line


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one mutant: killed, survived, timeout, gone or removed."""

    outcome: str
    test: str = ""  # the first that failed
    place: str = ""
    tests: int = 0  # that ran
    seconds: float = 0.0


def main() -> int:
    """Run the command; 1 if `find` found mutants without a place, else 0."""
    arguments = _arguments()
    sample = [Mutant(**entry) for entry in json.loads(arguments.sample.read_text("utf-8"))]
    if arguments.command == "find":
        return _find(Tree(arguments.root), sample, Moves(arguments.moves))
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), 10))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # also ends the running tests
    warm_up()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        _run(arguments, sample, Path(folder).resolve())
    return 0


def _find(tree: Tree, sample: list[Mutant], moves: Moves) -> int:
    gone = [each for each in sample if each.id not in moves.removed and not tree.find(each, moves)]
    for mutant in gone:
        print(f"{mutant.id} {mutant.module} {mutant.qualname}\n    {mutant.line}")
    print(f"{len(gone)} of {len(sample)} mutants have no known place")
    return 1 if gone else 0


def _run(arguments: argparse.Namespace, sample: list[Mutant], copy: Path) -> None:
    key = hashlib.sha256(f"{_copy(arguments.root, copy)} {arguments.markers}".encode()).hexdigest()
    for folder in (arguments.cache, arguments.results.parent):
        folder.mkdir(parents=True, exist_ok=True)
    record = read_record(copy, arguments.markers, arguments.cache / f"{key[:16]}.json")
    print(
        f"{len(record.seconds)} tests pass; omitted because they fail: {record.failed}", flush=True
    )
    if not record.seconds:
        raise SystemExit("no test passes without a mutant; check --markers")
    judge = Judge(copy, record, Moves(arguments.moves))
    results = _read(arguments.results, key) if arguments.results.is_file() else {}
    before = _read(arguments.before) if arguments.before else {}
    for mutant in sample:
        if mutant.id in arguments.only or not (arguments.only or mutant.id in results):
            results[mutant.id] = result = judge.judge(mutant)
            print(mutant.id, result.outcome, result.test, flush=True)
            entries = {each: asdict(results[each]) for each in sorted(results)}
            text = json.dumps({"tree": key, "results": entries}, indent=1)
            part = arguments.results.with_suffix(".part")
            part.write_text(text, "utf-8")
            part.replace(arguments.results)
        table = _table(sample, results, before)
        arguments.results.with_suffix(".md").write_text(table, "utf-8")


class Judge:
    """Puts one mutant at a time into the copy of the tree, and runs tests until one fails."""

    def __init__(self, copy: Path, record: Record, moves: Moves) -> None:
        self._copy = copy
        self._seconds = record.seconds
        self._moves = moves
        self._tree = Tree(copy)
        self._covering = CoveringTests(copy, self._tree, record)

    def judge(self, mutant: Mutant) -> Result:
        """Return the result of the tests; the copy is restored afterwards."""
        if mutant.id in self._moves.removed:
            return Result("removed", self._moves.removed[mutant.id])
        place = self._tree.find(mutant, self._moves)
        if place is None:
            return Result("gone")
        began = time.monotonic()
        path = self._copy / place.file
        lines = [*self._tree.sources[place.file].lines]
        line = lines[place.number - 1]
        lines[place.number - 1] = line[: len(line) - len(line.lstrip())] + place.mutated + "\n"
        covering, rest = self._covering.select(place)
        try:
            _write(path, lines)
            ran, run = self._run(covering, self._quickest(rest))
        finally:
            _write(path, self._tree.sources[place.file].lines)
        outcome = "timeout" if run.is_timeout else "killed" if run.failures else "survived"
        where = f"{place.file}:{place.number}"
        seconds = round(time.monotonic() - began, 1)
        return Result(outcome, next(iter(run.failures), ""), where, ran, seconds)

    def _run(self, *groups: set[str]) -> tuple[int, Run]:
        """Return how many tests ran, and the run with the failure, if any."""
        ran = 0
        for part in itertools.chain.from_iterable(map(self._parts, groups)):
            left = part
            while left:
                run = self._run_once(left)
                ran += len(run.seconds)
                failed = next(iter(run.failures), None)
                if failed is None:
                    break
                if run.is_timeout or failed not in left or self._run_once([failed]).failures:
                    return ran, run
                # A flaky failure does not count.
                left = [test for test in left if test not in {failed, *run.seconds}]
        return ran, Run()

    def _run_once(self, tests: Sequence[str]) -> Run:
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        return run_tests(self._copy, ("-x", *files), self._seconds, frozenset(tests))

    def _parts(self, tests: set[str]) -> Iterator[list[str]]:
        """Yield the tests of the fastest files, then of more: collecting files is slow, too."""
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(tests):
            files[test.partition("::")[0]].append(test)
        quickest = sorted(
            files.values(), key=lambda each: sum(map(self._seconds.__getitem__, each))
        )
        for part in (quickest[:5], quickest[5:30], quickest[30:]):
            yield [test for each in part for test in each]

    def _quickest(self, tests: set[str]) -> set[str]:
        quickest: set[str] = set()
        total = 0.0
        for test in sorted(tests, key=lambda test: (self._seconds[test], test)):
            total += self._seconds[test]
            if total <= REST_S:
                quickest.add(test)
        return quickest


def _read(path: Path, tree: str | None = None) -> dict[str, Result]:
    content = json.loads(path.read_text("utf-8"))
    if tree not in {None, content["tree"]}:
        raise SystemExit(f"{path} has the results of another tree; name another file")
    return {key: Result(**entry) for key, entry in content["results"].items()}


def _table(sample: list[Mutant], results: dict[str, Result], before: dict[str, Result]) -> str:
    """Return Markdown: counts, mutants no longer killed, mutants not killed, all mutants."""
    known = [mutant for mutant in sample if mutant.id in results]
    counts = Counter(results[mutant.id].outcome for mutant in known)
    alive = [each for each in known if results[each.id].outcome not in {"killed", "timeout"}]
    lost = [each for each in alive if each.id in before and before[each.id].test]
    parts = {"Killed before, not now": lost, "Not killed": alive, "All": known}
    text = f"{len(known)} mutants: {', '.join(f'{key} {counts[key]}' for key in sorted(counts))}.\n"
    for title, mutants in parts.items():
        text += (
            f"\n## {title}: {len(mutants)}\n\n| id | outcome | place | line | mutated | test |\n"
        )
        text += "| --- " * 6 + "|\n" + "".join(_rows(mutants, results))
    return text


def _rows(mutants: list[Mutant], results: dict[str, Result]) -> Iterable[str]:
    for mutant in mutants:
        result = results[mutant.id]
        place = f"{result.place or mutant.module} {mutant.qualname}"
        codes = (f"`{mutant.line}`", f"`{mutant.mutated}`")
        cells = (mutant.id, result.outcome, place, *codes, result.test)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _copy(root: Path, target: Path) -> str:
    """Copy the files that git knows or would add; return a hash of all Python files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.decode()
    digest = hashlib.sha256()
    for name in sorted(filter(None, names.split("\0"))):
        source = root / name
        if source.is_symlink() or source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
        if name.endswith(".py") and source.is_file():
            digest.update(name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def _write(path: Path, lines: list[str]) -> None:
    """Write a module and remove its bytecode, which Python checks only by size and full seconds."""
    path.write_text("".join(lines), "utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation_sample",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=["find", "run"])
    parser.add_argument("--root", type=Path, default=HERE.parent, help="the tree to test")
    parser.add_argument("--sample", type=Path, default=HERE / "mutation_sample.json")
    parser.add_argument("--moves", type=Path, default=HERE / "mutation_moves.toml")
    parser.add_argument("--results", type=Path, default=OUT, help="also as .md")
    parser.add_argument("--before", type=Path, help="results to compare with")
    parser.add_argument("--cache", type=Path, default=HERE.parent / ".cache" / "mutants")
    parser.add_argument("--markers", default="check", help="which tests count")
    parser.add_argument(
        "--only", nargs="*", default=(), metavar="ID", help="run these mutants again"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
