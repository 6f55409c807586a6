"""The command `status`: health, and figures as tables.

The whole output stands in `transcripts/status.txt`.
"""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS
from service.commands.status import (
    backends_table,
    caches_table,
    errors_table,
    keys_table,
)
from service.commands.tables import (
    shown_ago,
    shown_share,
    shown_size,
    shown_span,
    shown_watermark,
)
from tests.service.commands.fake_sidecar import DIMENSION, ERROR, STATUS, FakeSidecar
from tests.shown_shares import SHOWN_SHARES

Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize("make", [keys_table, backends_table, caches_table, errors_table])
def test_small_terminal_cuts_no_name(make: Callable[[list[Any]], Table]) -> None:
    """At 80 columns a long name is folded, and no figure is cut."""
    console = Console(width=80, record=True, file=io.StringIO())

    console.print(make([DIMENSION | {"name": "x" * 200, "recent_errors": [ERROR]}]))

    printed = console.export_text()
    assert (printed.count("x"), "…" in printed) == (200, False)


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": True},
        STATUS | {"memory": {}},
        STATUS | {"memory": 3},
        STATUS | {"health": ["a"]},
        STATUS | {"dimensions": [{}]},
    ],
)
async def test_other_answers_are_no_status(
    answer: dict[str, Any], sidecar: FakeSidecar, capsys: Printed
) -> None:
    """An object of another server ends in an error, and not in a traceback."""
    sidecar.status = answer

    code = await sidecar.command("status")

    assert (code, "no sidecar" in capsys.readouterr().err) == (69, True)


async def test_json_is_the_answer_itself(sidecar: FakeSidecar, capsys: Printed) -> None:
    """With --json a program gets what the HTTP route returns; the reader's token opens it."""
    sidecar.status, sidecar.reader_token = STATUS, "t0ken"
    token = sidecar.socket.with_name("token")
    token.write_text("t0ken\n")

    code = await sidecar.command("status", "--json", "--token-file", str(token))

    assert (code, json.loads(capsys.readouterr().out)) == (0, STATUS)


@pytest.mark.parametrize(
    ("show", "value", "text"),
    [
        (shown_size, 0, "0 B"),
        (shown_size, 1023, "1023 B"),
        (shown_size, 1024, "1.0 KiB"),
        (shown_size, 1536, "1.5 KiB"),
        (shown_size, 50 * 1024, "50.0 KiB"),
        (shown_size, 512 * 2**20, "512 MiB"),
        (shown_size, 2**55, "32768 TiB"),
        (shown_span, 0.0, "0 ms"),
        (shown_span, 0.0123, "12 ms"),
        (shown_span, 1.25, "1.2 s"),
        (shown_span, 60.0, "1 min 0 s"),
        (shown_span, 3_725.0, "1 h 2 min"),
        (shown_span, 200_000.0, "2 d 7 h"),
        *[(shown_span, 0.999, "999 ms"), (shown_span, 1.0, "1.0 s")],
        (shown_ago, 1.4, "now"),
        (shown_ago, 1.6, "2 s ago"),
        (shown_ago, 90.4, "1 min 30 s ago"),
    ],
)
def test_figures_have_units(show: Callable[[float], str], value: float, text: str) -> None:
    """Digits are grouped; sizes have one unit, spans two, and ages whole seconds."""
    assert show(value) == text


@pytest.mark.parametrize(("part", "whole", "text"), [*SHOWN_SHARES, (0, 0, "")])
def test_only_the_whole_is_everything(part: int, whole: int, text: str) -> None:
    """A share is rounded half up, but neither to 0 % nor to 100 %."""
    assert shown_share(part, whole) == text


@pytest.mark.parametrize(
    ("watermark_ms", "text"),
    [
        (None, "none yet"),
        (MAX_WATERMARK_MS, "end of input"),
        (60_000, "1970-01-01 00:01:00Z, 40.0 s behind"),
        (100_000, "1970-01-01 00:01:40Z, 0 ms behind"),
        (105_000, "1970-01-01 00:01:45Z, 5.0 s ahead"),
        (2**62, "4,611,686,018,427,387,904 ms"),
    ],
)
def test_watermark_has_a_distance(watermark_ms: int | None, text: str) -> None:
    """An event time and its distance to now; beyond any calendar it is a number."""
    assert shown_watermark(watermark_ms, 100.0) == text
