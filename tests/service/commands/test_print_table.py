"""Tables on stdout."""

import pytest
from rich.table import Table

from service.commands.tables import print_table


def test_pipes_get_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal nothing is cut, folded or coloured."""
    table = Table("name")
    table.add_row("x" * 500)

    print_table(table)

    printed = capsys.readouterr().out
    assert ("x" * 500 in printed, "\x1b" in printed, len(printed.splitlines())) == (True, False, 5)
