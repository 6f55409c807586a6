"""Code blocks of a page in Markdown, and what the page says about each of them."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[3]
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")
_TITLE = re.compile(r'title="(.+?)"')
OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: Path
    line: int  # of its first line of code, from 1
    language: str
    title: str  # empty if it has none
    text: str
    not_run: str  # the reason, or empty

    @property
    def place(self) -> str:
        """Page and line, as an editor understands them."""
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"

    @property
    def is_file(self) -> bool:
        """Whether the block is the content of a file, which its title names."""
        return "." in self.title

    @property
    def is_output(self) -> bool:
        """Whether the block shows what the block before it prints."""
        return self.title == OUTPUT

    @property
    def is_runnable(self) -> bool:
        """Whether the block is run, or written to a file."""
        return not self.not_run and (self.is_file or self.language in {"sh", "sql", "python"})


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page in their order, also those within lists."""
    blocks = []
    reason = ""
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "html_block" and (found := _NOT_RUN.search(token.content)):
            reason = found[1]
        elif token.type == "fence":
            assert token.map is not None
            language, _, rest = token.info.strip().partition(" ")
            title = _TITLE.search(rest)
            name = title[1] if title else ""
            line = token.map[0] + 2
            blocks.append(Block(page, line, language, name, token.content, reason))
            reason = ""
    return blocks


def pages() -> list[Path]:
    """README.md, and all pages of the site but decisions."""
    found = (ROOT / "docs").rglob("*.md")
    kept = [page for page in found if "decisions" not in page.parts]
    return [ROOT / "README.md", *sorted(kept)]
