"""The command `invalidate`."""

from pathlib import Path

import pytest

from tests.service.commands.fake_sidecar import FakeSidecar

Printed = pytest.CaptureFixture[str]


async def test_keys_are_forgotten(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Only the keys that were named are asked to be forgotten, in the key's types."""
    code = await sidecar.command("invalidate", "weather", "JFK,5", "LGA,6")

    asked = ("/v1/dimensions/weather/invalidate", {"keys": [["JFK", 5], ["LGA", 6]]})
    assert (code, capsys.readouterr().out) == (0, "invalidated: 2\n")
    assert sidecar.asked == [asked]


async def test_all_is_forgotten(sidecar: FakeSidecar) -> None:
    """`--all` needs no keys, nor the schema, which may be gone."""
    code = await sidecar.command("invalidate", "down", "--all")

    assert (code, sidecar.asked) == (0, [("/v1/dimensions/down/invalidate", {"all": True})])


@pytest.mark.parametrize("arguments", [(), ("JFK", "--all")])
async def test_keys_or_all_are_needed(
    sidecar: FakeSidecar, arguments: tuple[str, ...], capsys: Printed
) -> None:
    """Nothing to forget, or both, is a mistake that must not forget everything."""
    code = await sidecar.command("invalidate", "airports", *arguments)

    assert (code, sidecar.asked) == (64, [])
    assert "give keys, or --all, and not both" in capsys.readouterr().err


async def test_token_is_shown(sidecar: FakeSidecar, tmp_path: Path) -> None:
    """The token in the file opens what is closed."""
    sidecar.admin_token = "t0ken"
    (tmp_path / "token").write_text("t0ken\n")

    code = await sidecar.command(
        "invalidate", "airports", "--all", "--token-file", str(tmp_path / "token")
    )

    assert (code, len(sidecar.asked)) == (0, 1)


async def test_token_is_asked_for(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Without the token nothing is forgotten, and the option is named."""
    sidecar.admin_token = "t0ken"

    code = await sidecar.command("invalidate", "airports", "--all")

    assert (code, sidecar.asked) == (77, [])
    assert capsys.readouterr().err == "error: this needs a valid token; give --token-file FILE\n"


async def test_other_token_is_told_apart(
    sidecar: FakeSidecar, tmp_path: Path, capsys: Printed
) -> None:
    """Who showed a token is not told to show one, but which one it must be."""
    sidecar.admin_token = "t0ken"
    (tmp_path / "token").write_text("another\n")

    code = await sidecar.command(
        "invalidate", "airports", "--all", "--token-file", str(tmp_path / "token")
    )

    told = capsys.readouterr().err
    assert (code, "the token of --token-file is not the one of its auth.token_file" in told) == (
        77,
        True,
    )


async def test_missing_admin_token_names_the_socket(sidecar: FakeSidecar, capsys: Printed) -> None:
    """Where no token would help, none is asked for: the socket's option is named instead."""
    sidecar.admin_token = "t0ken"
    sidecar.refusal = "no admin token is configured: set auth.admin_token_file"

    code = await sidecar.command("invalidate", "airports", "--all")

    told = f"error: {sidecar.refusal}; the socket is chosen by --endpoint unix:///path\n"
    assert (code, sidecar.asked, capsys.readouterr().err) == (77, [], told)
