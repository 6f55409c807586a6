"""The command `status`."""

import json
from pathlib import Path
from typing import Any

import pytest

from service.commands.status_tables import summary_line
from tests.service.commands.fake_sidecar import FakeSidecar
from tests.service.commands.status_answer import CHANNEL, DIMENSION, ERROR, STATUS

Printed = pytest.CaptureFixture[str]


async def test_tables_are_for_people(sidecar: FakeSidecar, capsys: Printed) -> None:
    """The process, its dimensions and its channels, each with its heading."""
    code = await sidecar.command("status")

    printed = capsys.readouterr().out
    assert code == 0
    assert printed.splitlines()[:2] == [summary_line(STATUS), "Healthy: the dimension answers"]
    headings = ("keys since the start", "stores", "caches", "no errors", "channels, in records")
    assert [each for each in headings if each not in printed] == []
    assert CHANNEL["origin"] in printed


async def test_no_channels_are_told(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Without a task that looks anything up there is a sentence in the table's place."""
    sidecar.status = STATUS | {"channels": []}

    await sidecar.command("status")

    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "no channels are open: no Spark task looks anything up now"


async def test_outage_is_told(sidecar: FakeSidecar, capsys: Printed) -> None:
    """A store that does not answer is why the sidecar is degraded, and its errors are listed."""
    backend = DIMENSION["backend"] | {"breaker": "open"}
    sidecar.status = STATUS | {
        "dimensions": [DIMENSION | {"backend": backend, "recent_errors": [ERROR]}]
    }

    await sidecar.command("status")

    printed = capsys.readouterr().out
    reason = "  airports: the store does not answer, queries are held back"
    assert printed.splitlines()[1:3] == ["Degraded", reason]
    assert all(told in printed for told in ("recent errors", ERROR["code"], "3 s ago"))


async def test_reasons_leave_the_terminal_alone(sidecar: FakeSidecar, capsys: Printed) -> None:
    """What a store says cannot move the cursor, nor begin a line."""
    sidecar.status = STATUS | {"version": "\x1b[2J", "not_ready": {"airports": "a\n\x1b[2Jb"}}

    await sidecar.command("status")

    printed = capsys.readouterr().out
    assert printed.splitlines()[2] == r"  airports: a\n\x1b[2Jb"
    assert "\x1b[2J" not in printed


async def test_json_is_the_sidecars_answer(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Programs get what the HTTP route gives."""
    code = await sidecar.command("status", "--json")

    assert (code, json.loads(capsys.readouterr().out)) == (0, STATUS)


async def test_token_is_shown(sidecar: FakeSidecar, tmp_path: Path, capsys: Printed) -> None:
    """Without the token nothing is told, and the option is named; with it, all is."""
    sidecar.reader_token = "t0ken"
    (tmp_path / "token").write_text("t0ken\n")

    refused = await sidecar.command("status")
    told = capsys.readouterr().err
    answered = await sidecar.command("status", "--token-file", str(tmp_path / "token"))

    assert (refused, answered) == (77, 0)
    assert told == "error: this needs a valid token; give --token-file FILE\n"


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": True},
        STATUS | {"memory": {}},
        STATUS | {"memory": 3},
        STATUS | {"not_ready": ["a"]},
        STATUS | {"dimensions": [{}]},
    ],
)
async def test_other_answers_are_no_status(
    answer: dict[str, Any], sidecar: FakeSidecar, capsys: Printed
) -> None:
    """An object of something else's is no traceback."""
    sidecar.status = answer

    code = await sidecar.command("status")

    assert (code, "no sidecar" in capsys.readouterr().err) == (69, True)
