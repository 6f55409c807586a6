"""Coverage index: the tests that execute a line, from one coverage run kept in a cache file.

Lines that run on import belong to no test: for them, the imports of the module are followed.
"""

import ast
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from coverage import CoverageData

from tools.forked_tests import run_tests
from tools.mutants import PRODUCT, Place, Tree


@dataclass(frozen=True, slots=True)
class Record:
    """Results of the coverage run."""

    seconds: dict[str, float]  # {test that passed: duration}
    failed: list[str]
    lines: dict[str, dict[str, list[int]]]  # {file: {line: [indexes of tests in `seconds`]}}


def read_record(copy: Path, markers: str, file: Path) -> Record:
    """Return the record of this tree; if the file does not exist, run the tests and write it."""
    if not file.is_file():
        file.write_text(json.dumps(asdict(_record(copy, markers, file))), "utf-8")
    return Record(**json.loads(file.read_text("utf-8")))


def _record(copy: Path, markers: str, file: Path) -> Record:
    data = CoverageData(str(file.with_suffix(".coverage")))
    os.environ["COVERAGE_FILE"] = data.data_filename()
    run = run_tests(copy, ("-m", markers, "--cov", "--cov-context=test", "--cov-report="), {})
    del os.environ["COVERAGE_FILE"]
    if run.is_timeout:
        raise RuntimeError(f"a test hung without any mutant: {run.failures[-1]}")
    passed = {test: took for test, took in run.seconds.items() if test not in run.failures}
    numbers = {test: number for number, test in enumerate(passed)}
    data.read()
    lines: dict[str, dict[str, list[int]]] = {}
    for path in data.measured_files():
        name = str(Path(path).relative_to(copy))
        if not name.startswith(PRODUCT):
            continue
        lines[name] = {
            str(line): sorted(
                {numbers[test] for each in contexts if (test := _test(each)) in passed}
            )
            for line, contexts in data.contexts_by_lineno(path).items()
        }
    return Record(passed, run.failures, lines)


class CoveringTests:
    """Selects the tests that may notice a mutant."""

    def __init__(self, copy: Path, tree: Tree, record: Record) -> None:
        self._tree = tree
        self._record = record
        self._tests = list(record.seconds)
        self._importers: dict[str, set[str]] = defaultdict(set)  # {module: {file that imports it}}
        for path in (copy / "tests").rglob("*.py"):
            self._note_imports(str(path.relative_to(copy)), ast.parse(path.read_text("utf-8")))
        for file, source in tree.sources.items():
            self._note_imports(file, source.tree)

    def select(self, place: Place) -> tuple[set[str], set[str]]:
        """Return the tests that execute the line, and other tests related to its module.

        Of a line that runs on import: the tests near its module, and the tests of its importers.
        """
        module = place.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        importers = self._importers[module]
        near = {test for test in self._tests if test.partition("::")[0] in importers}
        near |= self._executing(place.file)
        if covering := self._executing(place.file, [place.number]):
            return covering, near - covering
        return near, {test for file in importers for test in self._executing(file)} - near

    def _executing(self, file: str, numbers: Iterable[int] | None = None) -> set[str]:
        lines = self._record.lines.get(file, {})
        wanted = lines if numbers is None else map(str, numbers)
        return {self._tests[test] for number in wanted for test in lines.get(number, ())}

    def _note_imports(self, file: str, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                for name in (node.module, *names):
                    self._importers[name].add(file)


def _test(context: str) -> str:
    return context.rpartition("|")[0]  # the phase of the test follows
