"""The command `explain`."""

import json

import pytest

from tests.service.commands.fake_sidecar import FakeSidecar

Printed = pytest.CaptureFixture[str]


async def test_explanation_is_a_list_of_facts(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Each fact of the explanation has its line."""
    code = await sidecar.command("explain", "airports", "JFK")

    lines = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    facts = [[cell.strip() for cell in line] for line in lines]
    assert (code, facts) == (0, [["dimension", "airports"], ["state", "cached"]])


async def test_json_is_the_sidecars_answer(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Programs get what the HTTP route gives."""
    await sidecar.command("explain", "airports", "JFK", "--json")

    assert json.loads(capsys.readouterr().out) == {"dimension": "airports", "state": "cached"}


async def test_key_is_one_segment_of_the_path(sidecar: FakeSidecar) -> None:
    """Parts are escaped, the commas between them are not."""
    await sidecar.command("explain", "airports", "a/b,c?ü")
    await sidecar.command("explain", "weather", '["a,b", -5]')

    assert [path for path, _ in sidecar.asked] == [
        "/v1/dimensions/airports/explain/a%2Fb%2Cc%3F%C3%BC",
        "/v1/dimensions/weather/explain/a%2Cb,-5",
    ]
