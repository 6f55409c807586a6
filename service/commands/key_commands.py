"""`lookup`, `explain` and `invalidate`: requests to a running sidecar for keys of a dimension.

Keys are typed as text and converted to the types of the dimension's key.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from lookup_core.errors import ErrorCode
from service.commands.endpoint import JsonOption
from service.commands.exit_code import ExitCode
from service.commands.sidecar_client import (
    KeyField,
    SidecarClient,
    dimension_path,
    sidecar_command,
)
from service.commands.tables import print_table, shown, shown_span

FAILURES = frozenset({"error", "timeout"})  # outcomes

DimensionArgument = Annotated[
    str, typer.Argument(metavar="DIMENSION", help="Its name, as in the configuration.")
]


@sidecar_command
async def lookup(
    dimension: DimensionArgument,
    keys: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="Text or JSON; commas separate the parts of a key; put -- before a leading -.",
        ),
    ],
    *,
    client: SidecarClient,
    as_json: JsonOption = False,
) -> None:
    """Look up keys, as a Spark task does.

    Exit code 1 if any key ends in an error or a timeout.
    """
    fields = await client.key_fields(dimension)
    body = {"keys": [key_value(key, fields) for key in keys]}
    answer = await client.request("POST", f"{dimension_path(dimension)}/lookup", body=body)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        print_table(answer_table(keys, answer))
        # On stdout, so that it stands below the table that it explains.
        for line in error_lines(answer, fields):
            typer.echo(line)
    if not FAILURES.isdisjoint(answer["outcomes"]):
        raise typer.Exit(ExitCode.KEYS_FAILED)


@sidecar_command
async def explain(
    dimension: DimensionArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="As for lookup.")],
    *,
    client: SidecarClient,
    as_json: JsonOption = False,
) -> None:
    """Explain where the answer to a key comes from.

    Shows whether the key is cached, the age of its row, and when it expires. No query is sent, and
    the cache is unchanged.
    """
    value = key_value(key, await client.key_fields(dimension))
    segments = ",".join(map(_segment, value if isinstance(value, list) else [value]))
    explanation = await client.request("GET", f"{dimension_path(dimension)}/explain/{segments}")
    if as_json:
        typer.echo(json.dumps(explanation))
        return
    table = Table(show_header=False)
    for name, value in explanation.items():
        table.add_row(shown(name), shown(value))
    print_table(table)


def _segment(part: object) -> str:
    return quote(part if isinstance(part, str) else json.dumps(part), safe="")


@sidecar_command
async def invalidate(
    dimension: DimensionArgument,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="KEY", help="As for lookup; or give --all.")
    ] = None,
    *,
    client: SidecarClient,
    drops_all: Annotated[bool, typer.Option("--all", help="Drop the whole cache.")] = False,
) -> None:
    """Drop keys, or all, from the cache.

    The next lookup queries them again. Needs the admin token if the sidecar has an
    auth.admin_token_file.
    """
    if bool(keys) == drops_all:
        raise typer.BadParameter("give keys or --all" + (", not both" if keys else ""))
    body: dict[str, object] = {"all": True}
    if keys:
        fields = await client.key_fields(dimension)
        body = {"keys": [key_value(key, fields) for key in keys]}
    answer = await client.request("POST", f"{dimension_path(dimension)}/invalidate", body=body)
    typer.echo(f"invalidated: {answer['invalidated']}")


def key_value(text: str, fields: Sequence[KeyField]) -> Any:  # noqa: ANN401  # any JSON value
    """Return the JSON value of a key given as JSON, or as plain text with commas between parts.

    Raises typer.BadParameter for a wrong number of parts.
    """
    if text[:1] in {"[", '"'}:
        value = _json(text, otherwise=text)
        if value != text:
            return value
    if len(fields) == 1:
        return _part(text, fields[0])
    parts = text.split(",")
    if len(parts) != len(fields):
        names = ", ".join(field.name for field in fields)
        raise typer.BadParameter(f"key {text!r} has {len(parts)} part(s), but the key is ({names})")
    return [_part(part, field) for part, field in zip(parts, fields, strict=True)]


def _part(text: str, field: KeyField) -> Any:  # noqa: ANN401  # as above
    return text if field.is_text else _json(text, otherwise=text)


def _json(text: str, *, otherwise: str) -> Any:  # noqa: ANN401  # as above
    try:
        # NaN and Infinity are Python's, not JSON's.
        return json.loads(text, parse_constant=lambda _: otherwise)
    except ValueError:
        return otherwise


def answer_table(keys: Sequence[str], answer: Mapping[str, Any]) -> Table:
    """Return a table with a line for each key: outcome, age and columns of its row."""
    rows = [row or {} for row in answer["rows"]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table("key", "outcome", "age")
    for column in columns:
        table.add_column(shown(column))
    answered = zip(keys, outcomes(answer), answer["ages_ms"], rows, strict=True)
    for key, outcome, age_ms, row in answered:
        cells = [shown(row[name]) if name in row else Text() for name in columns]
        age = shown_span(age_ms / 1000) if row else ""
        table.add_row(shown(key), shown(outcome), age, *cells)
    return table


def outcomes(answer: Mapping[str, Any]) -> list[str]:
    """Return the outcomes; that of a failed key has its error code."""
    errors = answer.get("errors", {})  # {position, as text: error}
    return [
        f"{outcome}: {errors[str(position)]['code']}" if str(position) in errors else outcome
        for position, outcome in enumerate(answer["outcomes"])
    ]


def error_lines(answer: Mapping[str, Any], key: Sequence[KeyField]) -> list[str]:
    """Return the explanation of each code in the answer; codes of later versions have none."""
    codes = {error["code"] for error in answer.get("errors", {}).values()}
    types = ", ".join(f"{field.name} {field.type}" for field in key)
    of_types = {ErrorCode.TYPE: f"{ErrorCode.TYPE.meaning}; its key is {types}"}
    return [
        f"{code}: {of_types.get(code, code.explanation)}"
        for code in ErrorCode
        if code.value in codes
    ]
