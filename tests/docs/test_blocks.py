"""Code blocks of README.md and the site: each that can run is run, and prints what the page shows.

Each page runs in namespaces of its own: see `tests/docs/pages`.
"""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.docs.pages.blocks import ROOT, Block, blocks_of, pages
from tests.docs.pages.run import run_in_namespaces

PAGES = [page for page in pages() if any(block.is_runnable for block in blocks_of(page))]
BLOCKS = [block for page in pages() for block in blocks_of(page)]
REAL_PATH = {"README.md", "docs/tutorials/own-postgresql.md"}
TITLES = {"", "Output", "before", "after"}  # of blocks that are no files
LANGUAGES = {
    *("python", "sh", "sql", "yaml", "json", "text", "promql", "wire", "toml", "ini", "properties"),
    *("dockerfile", "http"),
}


def _marked(page: Path) -> object:
    name = str(page.relative_to(ROOT))
    tier = pytest.mark.real_path if name in REAL_PATH else pytest.mark.full
    return pytest.param(page, id=name, marks=tier)


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES])
def test_blocks_of_page_run(page: Path) -> None:
    """All blocks run in their order, and print what stands on the page."""
    assert run_in_namespaces(page)


@pytest.mark.full
@pytest.mark.parametrize(
    ("command", "output", "is_right"),
    [
        ("printf 'one\\ntwo 2\\n'", "one\ntwo …\n", True),
        ("seq 4", "1\n…\n4\n", True),
        ("printf 'one\\ntwo\\n'", "one\n", False),
        ("echo one; false", "one\n", False),
    ],
)
def test_output_is_compared(tmp_path: Path, command: str, output: str, *, is_right: bool) -> None:
    """A page fails if a command fails or ends the shell, or if its output differs beyond `…`."""
    page = tmp_path / "page.md"
    page.write_text(f'```sh\n{command}\n```\n\n```text title="Output"\n{output}```\n')

    assert run_in_namespaces(page) == is_right


@pytest.mark.full
def test_end_of_python_is_a_failure(tmp_path: Path) -> None:
    """Code that ends the interpreter does not end the page successfully."""
    page = tmp_path / "page.md"
    page.write_text("```python\nraise SystemExit\n```\n")

    assert not run_in_namespaces(page)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_all_fences_are_blocks(page: Path) -> None:
    """No fence is hidden in an admonition or in HTML, where it would not be run."""
    fences = [line for line in page.read_text().splitlines() if line.lstrip().startswith("```")]

    assert len(fences) == 2 * len(blocks_of(page))


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_block_has_a_known_language_and_parses(block: Block) -> None:
    """A block names its language; YAML, JSON and Python parse, also where they are not run."""
    assert block.language in LANGUAGES
    assert block.is_file or block.title in TITLES
    if block.language == "yaml":
        list(YAML(typ="safe").load_all(block.text))
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "python":
        compile(block.text, block.place, "exec")


def test_most_blocks_are_run() -> None:
    """At least 85 percent of the blocks of commands, SQL and Python run."""
    programs = [block for block in BLOCKS if block.language in {"sh", "sql", "python"}]
    run = [block for block in programs if block.is_runnable]

    assert len(run) >= 0.85 * len(programs)
