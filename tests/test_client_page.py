"""docs/client.md lists the options of the client."""

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_client import Sidecar

PAGE = Path(__file__).parents[1] / "docs" / "client.md"


@pytest.mark.parametrize("method", [Sidecar, Sidecar.lookup_join, Sidecar.lookup_udf])
def test_page_lists_options_with_defaults(method: Callable[..., Any]) -> None:
    """The options have the order and the defaults of the signature."""
    _, _, section = PAGE.read_text().partition(f"\n## `{method.__name__}`\n")
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", section.partition("\n## ")[0], re.MULTILINE)

    listed = [(name, _default(text)) for name, text in rows]

    options = inspect.signature(method).parameters.values()
    assert listed == [(each.name, each.default) for each in options if each.name != "self"]


def _default(text: str) -> object:
    return inspect.Parameter.empty if text == "required" else ast.literal_eval(text.strip("`"))
