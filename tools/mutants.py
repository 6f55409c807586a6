"""Mutants, and their places in a tree that has changed since they were drawn.

A mutant is stored by function and source line, not by line number.
"""

import ast
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

MODULE_LEVEL = "<module>"
PRODUCT = ("lookup_core", "spark_client", "service")  # code may move between these


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed line: `line` within `qualname` of `module` becomes `mutated`; see `code_of`."""

    id: str
    module: str
    qualname: str
    line: str
    occurrence: int  # from 0, among equal lines of the same function or class body
    operator: str
    mutated: str


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; `number` counts from 1, `mutated` is the code to put there."""

    file: str
    number: int
    mutated: str


class Moves:
    """Manual entries for renamed, rewritten and removed code; see `mutation_sample`."""

    def __init__(self, path: Path) -> None:
        tables = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
        self.removed: dict[str, str] = tables.get("removed", {})
        self.rewritten: dict[str, dict[str, str]] = tables.get("rewritten", {})
        self._renamed: dict[str, str] = tables.get("renamed", {})

    def rename(self, text: str) -> str:
        """Return the text with every renamed word replaced."""
        for old, new in self._renamed.items():
            text = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, text)
        return text


class Source:
    """A file's lines, and the innermost function or class that owns each of them."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.tree = ast.parse(text)
        self.owners = [MODULE_LEVEL] * len(self.lines)
        self._own(self.tree, "")
        self.numbers: dict[tuple[str, str], list[int]] = defaultdict(list)  # {(owner, code): lines}
        for number, (owner, line) in enumerate(zip(self.owners, self.lines, strict=True), 1):
            self.numbers[owner, code_of(line)].append(number)

    def _own(self, node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                last = child.end_lineno or child.lineno
                self.owners[first - 1 : last] = [prefix + child.name] * (last - first + 1)
                self._own(child, f"{prefix}{child.name}.")
            else:
                self._own(child, prefix)


class Tree:
    """The product code of a checkout; finds the place of a mutant."""

    def __init__(self, root: Path) -> None:
        self.sources = {
            str(path.relative_to(root)): Source(path.read_text("utf-8"))
            for package in PRODUCT
            for path in sorted((root / package).rglob("*.py"))
        }

    def find(self, mutant: Mutant, moves: Moves) -> Place | None:
        """Return where the mutant's line is now; None if that is not known or not unique."""
        if (entry := moves.rewritten.get(mutant.id)) is not None:
            return self._rewritten(**entry)
        names = (mutant.module, mutant.qualname, mutant.line, mutant.mutated)
        ways = (names, tuple(map(moves.rename, names)))
        for module, qualname, line, mutated in ways:
            path = module.replace(".", "/")
            for file in {f"{path}.py", f"{path}/__init__.py"} & self.sources.keys():
                numbers = self.sources[file].numbers.get((qualname, line), [])
                if len(numbers) > mutant.occurrence:
                    return Place(file, numbers[mutant.occurrence], mutated)
        for _, qualname, line, mutated in ways:
            if (found := self._elsewhere(qualname, line, mutant.occurrence)) is not None:
                return Place(*found, mutated)
        return None

    def _elsewhere(self, qualname: str, line: str, occurrence: int) -> tuple[str, int] | None:
        """Return the only place of this line in a function of this name, preferably its class."""
        last = qualname.rpartition(".")[2]
        found = [
            (owner, file, numbers[occurrence])
            for file, source in self.sources.items()
            for (owner, code), numbers in source.numbers.items()
            if code == line and owner.rpartition(".")[2] == last and len(numbers) > occurrence
        ]
        best = [entry for entry in found if entry[0] == qualname] or found
        return best[0][1:] if len(best) == 1 else None

    def _rewritten(self, *, file: str, line: str, mutated: str, qualname: str = "") -> Place | None:
        found = self.sources[file].numbers.items() if file in self.sources else ()
        numbers = [
            number
            for (owner, code), each in found
            if code == line and qualname in {"", owner}
            for number in each
        ]
        return Place(file, numbers[0], mutated) if len(numbers) == 1 else None


def code_of(line: str) -> str:
    """Return a line without indentation and trailing comment, as the formatter places it."""
    return line.strip().partition("  # ")[0]
