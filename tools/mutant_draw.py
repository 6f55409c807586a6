"""Mutant sampler: draws a fixed random sample from the operators of cosmic-ray.

Omits code without effect at run time: types, decorators, assertions, patterns, fakes.
"""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

from tools.mutants import Mutant, Source, code_of

PACKAGES = ("lookup_core", "spark_client", "service/engine")
# Only the nearest replacements of an operator: almost any test detects the others.
NEAREST = re.compile(
    r"core/(?:AddNot|Replace(?:True|False|And|Or|Break|Continue)With\w+|ExceptionReplacer"
    r"|NumberReplacer|ZeroIterationForLoop|ReplaceUnaryOperator_Delete_\w+"
    r"|ReplaceBinaryOperator_(?:Add_Sub|Sub_Add|Mul_(?:Add|FloorDiv)|Div_Mul|FloorDiv_Mul|Mod_Mul"
    r"|LShift_RShift|RShift_LShift|BitAnd_BitOr|BitXor_BitOr)"  # `|` mostly joins types
    r"|ReplaceComparisonOperator_(?:Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is"
    r"|Lt_(?:LtE|GtE)|LtE_(?:Lt|Gt)|Gt_(?:GtE|LtE)|GtE_(?:Gt|Lt)))"
)
OPERATORS: dict[str, Operator] = {
    name.removeprefix("core/"): get_operator(name)()
    for name in operator_names()
    if NEAREST.fullmatch(name)
}

Mutation = tuple[str, int]  # an operator, and the index of its occurrence in the module


def draw(root: Path, size: int, seed: int) -> list[Mutant]:
    """Return `size` mutants, shared out to the packages by lines; at most one per line."""
    modules = {package: _modules(root, package) for package in PACKAGES}
    counts = {
        package: sum(len(source.lines) for source in sources.values())
        for package, sources in modules.items()
    }
    sample: list[Mutant] = []
    for package, sources in modules.items():
        share = round(size * counts[package] / sum(counts.values()))
        share = size - len(sample) if package == PACKAGES[-1] else share
        sample += _draw(sources, share, random.Random(seed))
    return [replace(mutant, id=f"m{number:03}") for number, mutant in enumerate(sample, 1)]


def _draw(sources: dict[str, Source], size: int, chance: random.Random) -> list[Mutant]:
    lines = [
        (module, number, mutations)
        for module, source in sources.items()
        for number, mutations in sorted(_mutations(source).items())
    ]
    chance.shuffle(lines)
    drawn: dict[tuple[str, int], Mutant] = {}
    for module, number, mutations in lines:
        mutants = (
            _mutant((module, number), sources[module], mutation)
            for mutation in chance.sample(mutations, len(mutations))
        )
        if (mutant := next(filter(None, mutants), None)) is not None:
            drawn[module, number] = mutant
        if len(drawn) == size:
            break
    return [drawn[place] for place in sorted(drawn)]


def _mutations(source: Source) -> dict[int, list[Mutation]]:
    """Return {line: mutations} that may have an effect."""
    nodes = list(ast_nodes(get_ast("".join(source.lines))))
    ignored = [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in _ignored(source.tree)
    ]
    found: dict[int, list[Mutation]] = defaultdict(list)
    for name, operator in OPERATORS.items():
        starts = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in ignored):
                found[start[0]].append((name, occurrence))
    return found


def _mutant(place: tuple[str, int], source: Source, mutation: Mutation) -> Mutant | None:
    """Return a mutant, or None if it changes another line or does not compile."""
    (module, number), (name, occurrence) = place, mutation
    try:
        mutated = mutate_code("".join(source.lines), OPERATORS[name], occurrence)
        compile(mutated, module, "exec")
    except (SyntaxError, AttributeError):  # AttributeError at `except (errors.A, B)`
        return None
    lines = mutated.splitlines(keepends=True)
    before, after = code_of(source.lines[number - 1]), code_of(lines[number - 1])
    lines[number - 1] = source.lines[number - 1]
    if lines != source.lines or before == after or re.search(r"\wCosmicRay", after):
        return None  # CosmicRay: inserted at the dot of `except errors.A`
    owner = source.owners[number - 1]
    return Mutant(
        id="",
        module=module,
        qualname=owner,
        line=before,
        occurrence=source.numbers[owner, before].index(number),
        operator=name,
        mutated=after,
    )


def _ignored(tree: ast.AST) -> Iterator[ast.expr | ast.stmt | ast.pattern]:
    """Return the parts of a module in which mutants have no effect."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert | ast.pattern):
            yield node
        if isinstance(node, ast.FunctionDef) and node.name == "check_invariants":
            yield node
        yield from getattr(node, "decorator_list", ())
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if part is not None:
                yield part


def _modules(root: Path, package: str) -> dict[str, Source]:
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): Source(path.read_text("utf-8"))
        for path in sorted((root / package).rglob("*.py"))
        if not path.name.startswith(("fake", "__init__"))
    }
