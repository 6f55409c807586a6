"""Transcripts of commands: output, queries and exit code.

The cases stand in `transcripts/*.txt`: a rule (`#`), attributes of the fake sidecar (`=`), files
(`@`), the command (`$`) and its output, lines of stderr (`!`), queries that the sidecar received
(`>`), and the exit code (`?`) unless it is 0. Trailing blanks do not count.
"""

import asyncio
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from service.commands.application import run
from service.config.loading import EMBEDDED
from tests.service.commands.fake_sidecar import FakeSidecar

TRANSCRIPTS = Path(__file__).parent / "transcripts"
OF_A_SIDECAR = frozenset({"lookup", "explain", "invalidate", "status"})


@dataclass
class Transcript:
    """A command, its input, and its expected result."""

    setting: list[str] = field(default_factory=list)  # JSON objects
    files: list[str] = field(default_factory=list)  # name and text
    command: str = ""
    result: list[str] = field(default_factory=list)  # as in the file


def transcripts() -> Iterator[ParameterSet]:
    """The transcripts of all files, named by their commands."""
    for file in sorted(TRANSCRIPTS.iterdir()):
        current = Transcript()
        for line in [*file.read_text().splitlines(), "# end"]:
            if line[:2] in {"# ", "@ ", "= ", "$ "} and current.command:
                yield pytest.param(current, id=f"{file.stem}: {current.command}")
                current = Transcript()
            match line[:2]:
                case "= ":
                    current.setting.append(line[2:])
                case "@ ":
                    current.files.append(line[2:])
                case "$ ":
                    current.command = line[2:]
                case kind if kind != "# " and line:
                    current.result.append(line)


@pytest.mark.parametrize("transcript", list(transcripts()))
async def test_command_ends_as_written(
    transcript: Transcript, sidecar: FakeSidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    """Output, errors, queries and exit code are exactly those of the transcript."""
    folder = sidecar.socket.parent
    for each in transcript.files:
        name, _, text = each.partition(" ")
        (folder / name).touch(0o600)
        (folder / name).write_text(text.replace("{data}", str(EMBEDDED.parent)))
    for each in transcript.setting:
        vars(sidecar).update(json.loads(each))
    command = transcript.command.replace("{folder}", str(folder))
    arguments = shlex.split(command.replace("{example}", str(EMBEDDED)))

    is_remote = arguments[:1] and arguments[0] in OF_A_SIDECAR and "--endpoint" not in arguments
    code = await (sidecar.command(*arguments) if is_remote else asyncio.to_thread(run, arguments))

    out, err = capsys.readouterr()
    found = [line.rstrip() for line in out.splitlines() if line]
    found += [f"! {line}" for line in err.splitlines()]
    found += [f"> {path} {json.dumps(body)}" for path, body in sidecar.queries]
    found += [f"? {int(code)}"] if code else []
    assert found == [
        line.replace("{endpoint}", f"unix://{sidecar.socket}")
        .replace("{folder}", str(folder))
        .replace("{example}", str(EMBEDDED))
        .replace("{data}", str(EMBEDDED.parent))
        for line in transcript.result
    ]
