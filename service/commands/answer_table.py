"""A lookup's answer as a table for people.

For programs there is `--json`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from lookup_core.errors import ErrorCode
from service.commands.key_value import KeyField


def answer_table(keys: Sequence[str], answer: Mapping[str, Any]) -> Table:
    """One line for each key: its outcome, its row's age, and its row."""
    rows = [row or {} for row in answer["rows"]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table("key", "outcome", "age")
    for column in columns:
        table.add_column(shown(column))
    answered = zip(keys, outcomes(answer), answer["ages_ms"], rows, strict=True)
    for key, outcome, age_ms, row in answered:
        age = shown_age(age_ms) if row else ""
        cells = [shown(row[name]) if name in row else Text() for name in columns]
        table.add_row(shown(key), shown(outcome), age, *cells)
    return table


def outcomes(answer: Mapping[str, Any]) -> list[str]:
    """The outcomes; where a key failed, with the code of its error."""
    errors = answer.get("errors", {})  # {position, as text: error}
    return [
        f"{outcome}: {errors[str(position)]['code']}" if str(position) in errors else outcome
        for position, outcome in enumerate(answer["outcomes"])
    ]


def failures(answer: Mapping[str, Any], key: Sequence[KeyField]) -> list[str]:
    """What the errors of single keys mean, each once; of those only that this version knows."""
    codes = {error["code"] for error in answer.get("errors", {}).values()}
    types = ", ".join(f"{field.name} {field.type}" for field in key)
    more = {ErrorCode.TYPE: f"; its key is {types}"}
    return [
        f"{code}: {code.meaning}{more.get(code, '')}" for code in ErrorCode if code.value in codes
    ]


def shown(value: object) -> Text:
    """The value as text that changes neither colours nor the terminal."""
    text = value if isinstance(value, str) else "null" if value is None else str(value)
    return Text("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


def shown_age(age_ms: int) -> str:
    """An age in the unit that suits it."""
    return f"{age_ms} ms" if age_ms < 1000 else f"{age_ms / 1000:.1f} s"
