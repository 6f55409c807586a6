"""The command `lookup`."""

import json
import sys
from pathlib import Path

import pytest

from service.commands.application import run
from tests.service.commands.fake_sidecar import AIRPORTS, FakeSidecar

Printed = pytest.CaptureFixture[str]


async def test_rows_stand_in_a_table(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Each key has its line: outcome, age, row; a key without a row is no failure."""
    code = await sidecar.command("lookup", "airports", "JFK", "???", "JFK")

    printed = capsys.readouterr()
    lines = [line.split("│")[1:-1] for line in printed.out.splitlines() if "│" in line]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["JFK", "hit", "1.5 s", "John F Kennedy Intl", "13"],
        ["???", "missing", "", "", ""],
        ["JFK", "hit", "1.5 s", "John F Kennedy Intl", "13"],
    ]
    assert (code, printed.err) == (0, "")


async def test_json_is_the_sidecars_answer(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Programs get what the HTTP route gives."""
    code = await sidecar.command("lookup", "airports", "LGA", "X", "--json")

    assert (code, json.loads(capsys.readouterr().out)) == (
        0,
        {"outcomes": ["hit", "missing"], "rows": [AIRPORTS["LGA"], None], "ages_ms": [1500, 0]},
    )


async def test_failed_keys_end_in_one(sidecar: FakeSidecar, capsys: Printed) -> None:
    """A key that failed makes exit code 1; why stands below the table, which has the others."""
    code = await sidecar.command("lookup", "airports", "JFK", "bad")

    out, err = capsys.readouterr()
    assert (code, "error: type" in out, "Kennedy" in out, err) == (1, True, True, "")
    told = "a key is not of the dimension's key type, or beyond its range; its key is faa string"
    assert out.splitlines()[-1] == f"type: {told}"


async def test_keys_are_typed_by_the_schema(sidecar: FakeSidecar) -> None:
    """Texts become the key's JSON types; composite keys are parted at the commas."""
    await sidecar.command("lookup", "weather", "JFK,5", '["a,b", 6]', "LGA,x")
    await sidecar.command("lookup", "airports", "5", "--json", "--", "-5")

    assert sidecar.asked == [
        ("/v1/dimensions/weather/lookup", [["JFK", 5], ["a,b", 6], ["LGA", "x"]]),
        ("/v1/dimensions/airports/lookup", ["5", "-5"]),
    ]


async def test_key_of_other_width_is_usage(sidecar: FakeSidecar, capsys: Printed) -> None:
    """A composite key with a part too few is told with the key's columns, and not asked for."""
    code = await sidecar.command("lookup", "weather", "JFK")

    assert (code, sidecar.asked) == (64, [])
    assert "key 'JFK' has 1 part(s), but the key is (faa, hour)" in capsys.readouterr().err


async def test_unknown_dimension_is_no_input(sidecar: FakeSidecar, capsys: Printed) -> None:
    """The sidecar's own words tell which dimensions there are."""
    code = await sidecar.command("lookup", "no/pe", "JFK")

    assert (code, capsys.readouterr().err) == (
        66,
        "error: no dimension 'no/pe'; configured: a\n",
    )


async def test_unavailable_dimension_may_come_later(sidecar: FakeSidecar, capsys: Printed) -> None:
    """A dimension whose table is not there yet is worth another try."""
    code = await sidecar.command("lookup", "down", "JFK")

    assert (code, capsys.readouterr().err) == (75, "error: no table x\n")


def test_no_sidecar_is_told_in_one_line(tmp_path: Path, capsys: Printed) -> None:
    """A socket that is not there is named, with what to do about it."""
    endpoint = f"unix://{tmp_path}/nope.sock"

    code = run(["lookup", "airports", "JFK", "--endpoint", endpoint])

    told = f"error: no sidecar at {endpoint}: No such file or directory; is it running there? "
    remedy = "if it is elsewhere, name it with --endpoint\n"
    assert (code, capsys.readouterr().err) == (69, told + remedy)


async def test_terminal_is_not_the_default(sidecar: FakeSidecar, capsys: Printed) -> None:
    """In a pipe nothing is cut to a width, and nothing is coloured."""
    sidecar.rows = {"JFK": {"name": "x" * 500}}

    await sidecar.command("lookup", "airports", "JFK")

    assert not sys.stdout.isatty()
    assert "x" * 500 in capsys.readouterr().out
