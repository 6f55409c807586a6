"""Column types as texts, in the notation of Spark's DDL: `struct<a int, b: array<string>>`."""

import re
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import types

from lookup_core.errors import nearest_name

_FLAT = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.utf8(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMALS = {"decimal", "dec", "numeric"}
_MAX_DIGITS = 38
_MAX_DEPTH = 16
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<sign>[<>(),:]))\s*")


def parsed_type(text: str) -> pa.DataType:
    """The Arrow type; raises ValueError with a reason for a text that is no type, or no known one.

    Maps and intervals are not known. A decimal without digits has 10, as in Spark.
    """
    tokens = _Tokens(text)
    kind = _type(tokens, _MAX_DEPTH)
    tokens.take("")
    return kind


def type_text(kind: pa.DataType) -> str:
    """The text of a type that `parsed_type` knows; else Arrow's name of it."""
    if types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return f"struct<{', '.join(f'{each.name} {type_text(each.type)}' for each in fields)}>"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return next((name for name, flat in _FLAT.items() if flat == kind), str(kind))


class _Tokens:
    """The tokens of a text, with one of them in view; the end is an empty one."""

    def __init__(self, text: str) -> None:
        self._rest = self._split(text)
        self.now = next(self._rest)

    def next(self) -> str:
        """The token in view; the following one comes into view."""
        before, self.now = self.now, next(self._rest, "")
        return before

    def take(self, expected: str) -> None:
        """Take the token in view, which must be this one."""
        if self.now != expected:
            wanted = expected or "the end"
            raise ValueError(f"expected {wanted}, got {self.now or 'the end'}")
        self.next()

    @staticmethod
    def _split(text: str) -> Iterator[str]:
        at = 0
        while found := _TOKEN.match(text, at):
            yield found[0].strip()
            at = found.end()
        if at < len(text) or not at:
            raise ValueError(f"expected a type, got {text[at:].strip() or 'nothing'}")
        yield ""


def _type(tokens: _Tokens, depth: int) -> pa.DataType:
    name = tokens.next().lower()
    if not depth:
        raise ValueError(f"is nested more than {_MAX_DEPTH} levels deep")
    if name in _DECIMALS:
        return _decimal(tokens)
    if name == "array":
        tokens.take("<")
        element = _type(tokens, depth - 1)
        tokens.take(">")
        return pa.list_(element)
    if name == "struct":
        tokens.take("<")
        return _struct(tokens, depth - 1)
    if name not in _FLAT:
        hint = nearest_name(name, [*_FLAT, "decimal", "array", "struct"])
        raise ValueError(f"{name or 'nothing'} is no known type{hint}")
    return _FLAT[name]


def _decimal(tokens: _Tokens) -> pa.DataType:
    precision, scale = 10, 0
    if tokens.now == "(":
        tokens.next()
        precision = _digits(tokens)
        if tokens.now == ",":
            tokens.next()
            scale = _digits(tokens)
        tokens.take(")")
    if not 1 <= precision <= _MAX_DIGITS or scale > precision:
        raise ValueError(f"decimal({precision},{scale}) must have up to {_MAX_DIGITS} digits")
    return pa.decimal128(precision, scale)


def _digits(tokens: _Tokens) -> int:
    text = tokens.next()
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise ValueError(f"expected a number of digits, got {text or 'the end'}")
    return int(text)


def _struct(tokens: _Tokens, depth: int) -> pa.DataType:
    fields: dict[str, pa.DataType] = {}
    while not fields or tokens.now == ",":
        if fields:
            tokens.next()
        name = tokens.next()
        if not re.fullmatch(r"`.+`|\w+", name):
            raise ValueError(f"expected the name of a field, got {name or 'the end'}")
        name = name[1:-1].replace("``", "`") if name.startswith("`") else name
        if name in fields:
            raise ValueError(f"the field {name} is named more than once")
        if tokens.now == ":":
            tokens.next()
        fields[name] = _type(tokens, depth)
    tokens.take(">")
    return pa.struct([*fields.items()])
