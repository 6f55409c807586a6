"""The client of the commands: connections, refusals, and keys and answers as texts.

What whole commands print and query stands in `transcripts/lookups.txt`.
"""

import asyncio
from pathlib import Path

import pytest
import typer
from aiohttp import web

from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    SidecarUnreachable,
    SidelookError,
)
from service.commands.doctor_run import sidecar_getter
from service.commands.endpoint import ClientFiles, parse_endpoint
from service.commands.key_commands import error_lines, key_value, outcomes
from service.commands.sidecar_client import KeyField, SidecarClient, mapped_errors, problem
from service.commands.tables import shown
from tests.service.commands.fake_sidecar import FakeSidecar
from tests.service.tls.certificates import authority

TEXT, WHOLE = KeyField("t", "string"), KeyField("w", "int64")


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, InvalidRequest, ErrorCode.BAD_REQUEST),
        (401, InvalidRequest, ErrorCode.UNAUTHORIZED),
        (403, InvalidRequest, ErrorCode.UNAUTHORIZED),
        (404, InvalidRequest, ErrorCode.UNKNOWN_DIMENSION),
        (499, InvalidRequest, ErrorCode.BAD_REQUEST),
        (500, BackendError, ErrorCode.INTERNAL),
        (503, BackendError, ErrorCode.OVERLOADED),
    ],
)
@pytest.mark.parametrize("body", [None, [], {"code": "of_a_later_version"}, {"code": []}])
def test_refusal_is_understood(
    status: int, kind: type[SidelookError], code: ErrorCode, body: object
) -> None:
    """The error has the sidecar's code and detail; without them, the status counts."""
    plain = problem(status, body)
    known = problem(status, {"code": ErrorCode.DRAINING.value, "detail": "because"})

    assert (type(plain), plain.code) == (kind, code)
    assert plain.detail.startswith(f"the sidecar answered with status {status}")
    assert (type(known), known.code, known.detail) == (kind, ErrorCode.DRAINING, "because")


def test_unusable_key_is_named(tmp_path: Path) -> None:
    """The fault names the options, the files and the reason."""
    signer, key = authority(tmp_path), tmp_path / "nonsense"
    key.write_text("nonsense")

    with pytest.raises(typer.BadParameter) as caught:
        ClientFiles(None, str(signer.file), str(key)).context()
    with pytest.raises(typer.BadParameter, match="give both or none"):
        ClientFiles(cert_file="tls.crt").context()

    fault = f"--cert-file, --key-file {signer.file}, {key} cannot be used: not pem"
    assert caught.value.message == fault


async def test_lost_connections_have_a_reason(tmp_path: Path) -> None:
    """A server that hangs up is no sidecar, or expects TLS; silence and refusals are named."""
    unix = await asyncio.start_unix_server(_hang_up, tmp_path / "s")
    tcp = await asyncio.start_server(_hang_up, "127.0.0.1", 0)
    port = tcp.sockets[0].getsockname()[1]

    async with unix, tcp:
        by_socket = await _reason(f"unix://{tmp_path}/s")
        by_tcp = await _reason(f"http://127.0.0.1:{port}")

    assert by_socket == (
        "another server listens there, or the connection was lost; "
        "is it running there? if it is elsewhere, name it with --endpoint"
    )
    assert f"its address is https://127.0.0.1:{port}" in by_tcp
    refused = await _reason("http://127.0.0.1:1")
    assert refused.startswith("Connection refused; is it running there?")
    endpoint = parse_endpoint("http://127.0.0.1:1")
    with pytest.raises(SidecarUnreachable, match="no answer in time"), mapped_errors(endpoint):
        raise TimeoutError


async def test_doctor_takes_any_answer(sidecar: FakeSidecar, tmp_path: Path) -> None:
    """The doctor gets status, body and date of an answer; JSON is parsed, other text is not."""
    ask = sidecar_getter(parse_endpoint(f"unix://{sidecar.socket}"), token=None)

    known = await ask("/v1/dimensions/airports")
    html = await ask("/v1/dimensions/html")
    unknown = await ask("/v1/dimensions/no%20such")

    assert (known.status, known.fields["unavailable"], bool(known.date)) == (200, None, True)
    assert (html.body, html.fields) == ("<html>", {})
    assert (unknown.status, unknown.fields["code"]) == (404, "unknown_dimension")
    absent = sidecar_getter(parse_endpoint(f"unix://{tmp_path}/none"), token="t")
    with pytest.raises(SidecarUnreachable, match="No such file"):
        await absent("/livez")


async def test_doctor_trusts_the_named_authority(tmp_path: Path) -> None:
    """Over https the certificate is checked, for the host or for another given name."""
    signer = authority(tmp_path)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=signer.server_context())
    await site.start()

    trusting = parse_endpoint(site.name, ClientFiles(str(signer.file)))
    assert (await sidecar_getter(trusting, token=None)("/livez")).status == 404
    with pytest.raises(SidecarUnreachable):
        await sidecar_getter(parse_endpoint(site.name), token=None)("/livez")
    with pytest.raises(SidecarUnreachable, match="not for"):
        await sidecar_getter(trusting, token=None, server_name="b")("/livez")
    await runner.cleanup()


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _reason(endpoint: str) -> str:
    """Why there is no answer."""
    async with SidecarClient.opened(parse_endpoint(endpoint), token=None) as client:
        with pytest.raises(SidecarUnreachable) as caught:
            await client.request("GET", "/v1/status")
    return caught.value.detail.removeprefix(f"no sidecar at {endpoint}: ")


@pytest.mark.parametrize(
    ("kinds", "text", "value"),
    [
        *[("string", text, text) for text in ("JFK", "42", "null", "[a]")],
        ("string", '"[a]"', "[a]"),
        ("int64", "42", 42),
        ("uint8", "-1", -1),
        ("int32", "null", None),
        ("int64", "x", "x"),
        ("int64", "1.5", 1.5),
        ("double", "NaN", "NaN"),
        ("bool", "true", True),
        ("date32[day]", "2013-01-01", "2013-01-01"),
        ("decimal128(10, 2)", "1.50", "1.50"),
        ("string|int64", "a,5", ["a", 5]),
        ("string|int64", ",5", ["", 5]),
        ("string|int64", '["a,b", 5]', ["a,b", 5]),
        ("string|int64", "[a,5", ["[a", 5]),
    ],
)
def test_key_has_the_column_s_type(kinds: str, text: str, value: object) -> None:
    """Numbers and booleans are typed without quotes, all else is text; commas separate parts."""
    fields = [KeyField("k", kind) for kind in kinds.split("|")]

    assert key_value(text, fields) == value


@pytest.mark.parametrize("text", ["a", "a,b,c", ""])
def test_number_of_parts_must_fit(text: str) -> None:
    """The fault names the columns of the key."""
    with pytest.raises(typer.BadParameter, match=r"but the key is \(t, w\)"):
        key_value(text, [TEXT, WHOLE])


def test_errors_are_explained_once() -> None:
    """Each code has one line with its remedy; an unknown code has none."""
    key = [KeyField("faa", "string"), KeyField("hour", "int64")]
    codes = ["ambiguous", "of_a_later_version", "ambiguous", "type"]
    errors = {str(place): {"code": code} for place, code in enumerate(codes, start=1)}
    answer = {"outcomes": ["hit", *["error"] * 4], "errors": errors}

    assert outcomes(answer) == ["hit", *(f"error: {code}" for code in codes)]
    assert sorted(error_lines(answer, key)) == [
        f"ambiguous: {ErrorCode.AMBIGUOUS.explanation}",
        f"type: {ErrorCode.TYPE.meaning}; its key is faa string, hour int64",
    ]
    assert error_lines({}, key) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("[red]x", "[red]x"),
        ("a\x1b[31m\n\x9b", "a\\x1b[31m\\n\\x9b"),
        (None, "null"),
        (1.5, "1.5"),
        ("\ud800", "\\ud800"),
    ],
)
def test_values_do_not_drive_the_terminal(value: object, text: str) -> None:
    """Markup and control characters in the data are printed, not interpreted."""
    assert shown(value).plain == text
