"""Whether all contenders that add columns add the same ones: a fast wrong answer is none.

Compares row for row, names and types included; who runs what is the caller's business.
"""

from collections.abc import Mapping

import pyarrow as pa

ORDER = "event"


def differences(outputs: Mapping[str, pa.Table]) -> list[str]:
    """Who does not have the rows of the first one, and where; rows may come in any order."""
    (reference, first), *others = outputs.items()
    expected = first.sort_by(ORDER)
    found = ((name, _difference(table.sort_by(ORDER), expected)) for name, table in others)
    return [f"{name} is not {reference}: {difference}" for name, difference in found if difference]


def _difference(table: pa.Table, expected: pa.Table) -> str:
    if _columns(table) != _columns(expected):
        return f"its columns are {_columns(table)}"
    if table.num_rows != expected.num_rows:
        return f"it has {table.num_rows:,} rows of {expected.num_rows:,}"
    return next(filter(None, (_wrong(table, expected, name) for name in table.column_names)), "")


def _columns(table: pa.Table) -> dict[str, str]:
    # Whether a column may be null is not compared: Spark's ways differ in what they can promise.
    return {field.name: str(field.type) for field in table.schema}


def _wrong(table: pa.Table, expected: pa.Table, name: str) -> str:
    """What the column has that is not so; "" where nothing is wrong."""
    if table[name].equals(expected[name]):
        return ""
    pairs = zip(table[name].to_pylist(), expected[name].to_pylist(), strict=True)
    row, (found, wanted) = next(each for each in enumerate(pairs) if each[1][0] != each[1][1])
    return f"{name} of event {expected[ORDER][row]} is {found}, not {wanted}"
